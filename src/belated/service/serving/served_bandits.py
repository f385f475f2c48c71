"""The bandits of one decider process: choose, commit, then answer.

They share connections, threads and commits.
"""

from __future__ import annotations

import asyncio
import logging
import math
from asyncio import Future
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from belated.advice.issues import Issue, IssueCounter, Noticed, issues_of, of_fields, total_of
from belated.core.events import (
    Decision,
    Erased,
    Event,
    Mark,
    ModeChanged,
    ModelChosen,
    Reward,
    SubjectDecision,
    SubjectReward,
)
from belated.core.ids import check_id, erased_key_of, subject_id, time_of
from belated.core.tuning import USUAL, Tuning
from belated.decider import (
    MODES,
    Decider,
    HoldoutDecider,
    LoadedModel,
    Mode,
    ParsedRequest,
    check_same,
)
from belated.decider.actions import (
    ActionState,
    Changes,
    action_change,
    is_offered,
    states_at,
)
from belated.decider.models import ModelState, Version, model_choice, models_in
from belated.decider.requests import check_subject, declared
from belated.exceptions import (
    BanditOff,
    CorruptJournal,
    InvalidInput,
    JournalError,
    JournalReadUnavailable,
    JournalReplaced,
    NotIndexed,
    RateLimited,
    UnsupportedFormat,
)
from belated.fold.decision_history import DecisionHistory, read_current, read_history
from belated.fold.published import PublishedModel
from belated.journals import Journal, SpoolJournal, Store, UniqueLog
from belated.journals.arrivals import erasure_of_subject
from belated.journals.coordination import CoordinationStore
from belated.journals.log import CountsDuplicates, finds_by_id
from belated.journals.spool.journal import SpooledLog, SpoolStatus
from belated.journals.store import BatchLog, StoreSession
from belated.model.kernels import Kernels
from belated.service.console.reports import BanditReport
from belated.service.histogram import SECONDS, Histogram
from belated.service.runtime import Runtime, Worker
from belated.service.serving.definition import Definition
from belated.service.serving.group_commit import Done, GroupCommit, pass_on, resolve
from belated.service.serving.request_batcher import RequestBatcher, Rows, Slots, table_of
from belated.service.serving.spools import WAIT, LeftSpools, Recovery, Spools

#: A model older than this, in seconds, is stale.
MAX_MODEL_AGE = 600.0
#: Seconds after which work on a batch lets the event loop serve others.
TURN_SECONDS = 0.01
#: Seconds in which a journal with a spool before it must answer a look-up.
LOOK_UP_SECONDS = 0.5
#: Events for unknown decisions that may wait at the learner: in all, and of one reporter.
MAX_UNMATCHED, MAX_OF_REPORTER = 100_000, 25_000
#: Seconds after which a refused event may be sent again.
RETRY_SECONDS = 60.0
#: Seconds between two log lines about a policy that fails.
FALLBACK_LOG_SECONDS = 60.0
#: Seconds between two log lines about one issue.
ISSUE_LOG_SECONDS = 60.0
#: Seconds to wait for a store without a spool before it.
PATIENT_WAIT = 10.0
#: Seconds that rewards wait for each other if each partition they fall on costs a record of Kafka.
REWARD_SECONDS = 0.25
#: Seconds between two looks for models while some come, and at most; between two for modes; and
#: after a failure.
POLL_SECONDS, MAX_POLL_SECONDS, MODE_SECONDS, MODEL_RETRY_SECONDS = 0.05, 0.25, 0.25, 0.2
#: The share of the event loop's time that loading models may take.
MAX_LOADING = 0.01

log = logging.getLogger("belated.service")

T = TypeVar("T")


@dataclass
class RequestStats:
    """What has happened, for metrics: counters only ever grow."""

    decisions: int = 0
    rewards: int = 0
    activations_voids: int = 0
    unmatched_refused: int = 0
    models: int = 0
    entropy: float = 0.0  # Σ -log p of the choices
    seconds: Histogram = field(default_factory=lambda: Histogram(SECONDS))  # of answers to decide
    failures: Counter[str] = field(default_factory=Counter)  # by what failed
    last_error: str = ""


class Repeated(NamedTuple):
    """A decision that was made earlier, and is returned again."""

    decision: Decision


class ServedBandit:
    """Handles the requests for one bandit; all but :meth:`close` on the event loop.

    Args:
        definition: of the bandit.
        shared: connections, threads and commits of all bandits of this process.
        seed: of the choices.
        kernels: to use instead of the best available.
        tuning: sizes, and how ids are made.
    """

    def __init__(
        self,
        definition: Definition,
        shared: ServedBandits,
        *,
        seed: int | None = None,
        kernels: Kernels | None = None,
        tuning: Tuning = USUAL,
    ) -> None:
        self.definition = definition
        self.stats = RequestStats()
        #: What the console shows; None where there is none.
        self.report_page: BanditReport | None = None
        self._runtime, self._loop, self.commits = shared.runtime, shared.loop, shared.commits
        policy, name = definition.policy, definition.name
        #: The least and the greatest reward that is accepted.
        self.reward_range = definition.rewards.range(policy.family.support)
        journal = shared.writing.journal(name, partitions=definition.partitions)
        definition.identify(journal)
        self._source = LoadedModel(policy, kernels=kernels)
        holdout = definition.holdout
        kind = Decider if holdout is None else partial(HoldoutDecider, holdout=holdout)
        self.decider = kind(
            policy,
            self._source,
            partitions=journal.partitions,
            baseline=definition.baseline,
            keep_requests=definition.keep_requests,
            tuning=tuning,
        )
        self._spool: SpoolJournal | None = None
        #: Delivers what other processes have left; None if there are no spools.
        self.recovery: Recovery | None = None
        if shared.spools is not None and shared.forwarder is not None:
            self._spool = shared.spools.open(journal, self._delivered, shared.forwarder)
        self._journal = journal
        self._log: UniqueLog = self._spool or journal
        #: On Kafka, rewards are batched separately to keep records large.
        self._reward_log = self._log
        self.reward_commits = shared.reward_commits
        if shared.rewarding is not shared.writing:
            self._reward_log = shared.rewarding.journal(name)
        self._slots = Slots(tuning.new_id)
        self._batcher = RequestBatcher(
            self.decider,
            self.commits,
            self._log,
            self._loop,
            self._runtime,
            np.random.default_rng(seed),
            slots=self._slots,
            finds_by_id=finds_by_id(journal),
        )
        self._reader = shared.reading.journal(name)
        self._models = CoordinationStore(shared.reading.share_cells(), name)
        self._threads = shared.threads
        self._room = UnmatchedRoom()
        self._fallback_log_due = -math.inf
        #: What was refused here; and of the journal, as of the last model.
        self._refused, self._journal_issues = IssueCounter(), dict[str, Noticed]()
        # By kind and field: when it may be logged again, and the count that was logged.
        self._logged: dict[tuple[str, str], tuple[float, int]] = {}
        self._tasks: set[Future[Any]] = set()
        #: By subject, done when the last request for a sticky decision was answered.
        self._deciding: dict[str, Future[None]] = {}
        #: By subject, since when a decision is current, and what awaits the one that is found.
        self._wanted: dict[str, tuple[int, Future[Decision | None]]] = {}
        self._looking_up = False
        #: When the newest model was made, in microseconds since 1970; None before the first one.
        self.model_at: int | None = None
        #: Whether the newest model is for other features, as in the course of a rolling deployment.
        self.has_other_features = False
        self._switched: ModeChanged | None = None
        #: The act of the operator who chose the model; None if the newest decides.
        self.chosen: ModelChosen | None = None

    # --- deciding --------------------------------------------------------------------------------

    def decide_many(
        self, parsed: Iterable[tuple[ParsedRequest, Rows]], done: Done[list[Decision]]
    ) -> None:
        """Decide for a batch, which is parsed in several turns of the event loop if it is large.

        Args:
            parsed: the requests of one caller, who gets all decisions or none, and their rows.
            done: is called with the decisions, or with the error.
        """
        self._run(self._decide_parsed(parsed), done)

    async def _decide_parsed(self, parsed: Iterable[tuple[ParsedRequest, Rows]]) -> list[Decision]:
        requests, rows = [], []
        turn = self._runtime.monotonic()
        for request, data in parsed:
            requests.append(request)
            rows.append(data)
            turn = await self._yield_if_due(turn)
        deciding: Future[list[Decision]] = self._loop.create_future()
        self.decide(requests, rows, partial(resolve, deciding))
        return await deciding

    async def _yield_if_due(self, turn: float) -> float:
        """Let the event loop serve others if this turn is long; returns when the turn began."""
        if self._runtime.monotonic() <= turn + TURN_SECONDS:
            return turn
        await asyncio.sleep(0)
        return self._runtime.monotonic()

    def decide(
        self, requests: Sequence[ParsedRequest], rows: Sequence[Rows], done: Done[list[Decision]]
    ) -> None:
        """Decide, in one commit for all; `done` is called once it is durable.

        Args:
            requests: of one caller, who gets all decisions or none.
            rows: of each, float32 numbers row after row.
            done: is called with the decisions, or with the error.

        Raises:
            BanditOff: the bandit is switched off.
        """
        if self.decider.mode == "off":
            raise BanditOff()
        start = self._runtime.monotonic()
        for request in requests:
            if request.subject is not None:
                check_subject(request.subject, request.id, self._journal.partitions)
        ids = [one.id for one in requests if one.id is not None]
        if ids:
            self._run(self._decide_named(requests, rows, ids, start), done)
        else:
            self._batcher.decide(requests, rows, partial(self._answered, start), done)

    def decide_sticky(
        self,
        subject: str | None,
        names: Collection[int | str] | None,
        span: int,
        parse: Callable[[], tuple[ParsedRequest, Rows]],
        done: Done[list[Decision] | Repeated],
    ) -> None:
        """Return the current decision of a subject, or decide.

        Requests for one subject take turns here, so that two at once get one decision. At another
        decider process, one at the same moment may be decided separately.

        Args:
            subject: that was named, if any was.
            names: of the actions on offer; None if they are as many as the rows of the request.
            span: for how long a decision is current, in microseconds.
            parse: returns the request and its rows, which only a new decision needs.
            done: is called with the decision, or with the error.
        """
        if subject is None:
            message = "sticky is for the decisions of a subject: send the subject, too"
            raise InvalidInput(message, None)
        if not finds_by_id(self._journal):
            message = "sticky decisions are looked up by their subject, and this store finds none"
            raise InvalidInput(f"{message}: leave out sticky, or use SQLite or PostgreSQL", None)
        if self.decider.mode == "off":
            raise BanditOff()
        self._run(self._decide_sticky(check_id(subject, "the subject"), names, span, parse), done)

    async def _decide_sticky(
        self,
        subject: str,
        names: Collection[int | str] | None,
        span: int,
        parse: Callable[[], tuple[ParsedRequest, Rows]],
    ) -> list[Decision] | Repeated:
        before = self._deciding.get(subject)
        turn = self._deciding[subject] = self._loop.create_future()
        try:
            if before is not None:
                await before
            now = self._runtime.clock()
            current = await self._current(subject, now - span)
            if current is not None:
                if names is None:
                    names = range(parse()[0].n_rows)
                if is_offered(current.action, names, self.decider.actions, now):
                    return Repeated(current)
            request, rows = parse()
            deciding: Future[list[Decision]] = self._loop.create_future()
            self.decide([request], [rows], partial(resolve, deciding))
            return await deciding
        finally:
            turn.set_result(None)
            if self._deciding[subject] is turn:
                del self._deciding[subject]

    async def _current(self, subject: str, since: int) -> Decision | None:
        """Look up the current decision of a subject, together with those of others."""
        answer: Future[Decision | None] = self._loop.create_future()
        self._wanted[subject] = since, answer
        if not self._looking_up:
            self._looking_up = True
            self._run(self._look_up(), lambda _: None)
        return await answer

    async def _look_up(self) -> None:
        """Look up what is wanted; what gathers meanwhile is looked up next."""
        while self._wanted:
            wanted, self._wanted = self._wanted, {}
            since = {subject: at for subject, (at, _) in wanted.items()}
            try:
                found = await self._read(partial(read_current, since=since))
            except Exception as error:
                for _, answer in wanted.values():
                    resolve(answer, error)
            else:
                for subject, (_, answer) in wanted.items():
                    resolve(answer, found.get(subject))
        self._looking_up = False

    def _run(self, work: Coroutine[Any, Any, T], done: Done[T]) -> None:
        """Run a coroutine as a task, and call `done` with its result."""
        task = self._loop.create_task(work)
        self._tasks.add(task)  # the event loop holds only a weak reference
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(partial(pass_on, done))

    async def _decide_named(
        self,
        requests: Sequence[ParsedRequest],
        rows: Sequence[Rows],
        ids: Sequence[str],
        start: float,
    ) -> list[Decision]:
        if len(set(ids)) < len(ids):
            raise InvalidInput("an id occurs twice in this request: ids name one decision each")
        are_made = requests[0].fallback is not None
        if any((request.fallback is None) is are_made for request in requests):
            message = "requests with and without fallback: send them in batches of their own"
            raise InvalidInput(message, None)
        # Under an id that is sent for the first time there is no decision yet; and if the client
        # retries before the first attempt is answered, it no longer waits for that answer.
        retried = [one.id for one in requests if one.id is not None and not one.first_attempt]
        try:
            known = await self._known_decisions(retried) if retried else {}
        except NotIndexed:
            if not are_made:
                raise
            known = {}  # of two decisions under one id, the first committed counts
        await self._check_same(requests, rows, known)
        new = [n for n, one in enumerate(requests) if one.id not in known]
        made: list[Decision] = []
        if new:
            deciding: Future[list[Decision]] = self._loop.create_future()
            asked, data = [requests[n] for n in new], [rows[n] for n in new]
            make = self._batcher.record if are_made else self._batcher.decide
            make(asked, data, self._count, partial(resolve, deciding))
            made = await deciding
            # Another decider may have been asked the same meanwhile: the first committed stands.
            await self._check_same(requests, rows, {event.id: event for event in made})
        first = iter(made)
        chosen = [known[one.id] if one.id in known else next(first) for one in requests]
        self.stats.seconds.add(self._runtime.monotonic() - start)
        return chosen

    async def _check_same(
        self,
        requests: Sequence[ParsedRequest],
        rows: Sequence[Rows],
        known: Mapping[str, Decision],
    ) -> None:
        """Refuse an id that was used for other rows: it is no retry."""
        turn = self._runtime.monotonic()
        for one, data in zip(requests, rows, strict=True):
            if one.id is not None and one.id in known:
                table = table_of([data], self.definition.policy.row_width)
                check_same(known[one.id], table, self.definition.features)
                turn = await self._yield_if_due(turn)

    def _answered(self, start: float, made: Sequence[Decision]) -> None:
        self._count(made)
        self.stats.seconds.add(self._runtime.monotonic() - start)

    def _count(self, made: Sequence[Decision]) -> None:
        for event in made:
            self.stats.entropy -= math.log(event.propensity)
        self.stats.decisions += len(made)
        if self.decider.failure is not None:
            self._log_fallback()

    def _log_fallback(self) -> None:
        failure, self.decider.failure = self.decider.failure, None
        now = self._runtime.monotonic()
        if now >= self._fallback_log_due:
            self._fallback_log_due = now + FALLBACK_LOG_SECONDS
            extra = {"bandit": self.definition.name, "why": str(failure)}
            log.error("decisions fall back to the baseline", extra=extra)

    # --- rewards, activations, voids -------------------------------------------------------------

    def append_rewards(
        self, rewards: Sequence[Reward | SubjectReward], done: Done[Sequence[int]]
    ) -> None:
        """Append rewards: one commit for all.

        Rewards of known decisions are always accepted. Others wait for their decision, and are
        refused with :class:`RateLimited` if too many do.
        """
        append = partial(self.reward_commits.append, self._reward_log, rewards, self._rewarded)
        self._admit(rewards[0].reporter, [one.id for one in rewards], append, done)

    def append_event(self, event: Mark, done: Done[Sequence[int]]) -> None:
        """Append an activation or a void, which are accepted as rewards are."""
        append = partial(self.commits.append, self._log, [event], self._noted)
        self._admit("", [event.id], append, done)

    def _admit(
        self,
        reporter: str,
        ids: Sequence[str],
        append: Callable[[Done[Sequence[int]]], None],
        done: Done[Sequence[int]],
    ) -> None:
        if self._room.is_ample(reporter, len(ids)):
            self._room.add(reporter, len(ids))
            append(done)
        else:
            self._run(self._append_known(reporter, ids, append), done)

    async def _append_known(
        self, reporter: str, ids: Sequence[str], append: Callable[[Done[Sequence[int]]], None]
    ) -> Sequence[int]:
        """Append events after looking up which of their decisions are unknown."""
        distinct = list(dict.fromkeys(ids))
        with suppress(JournalReadUnavailable, NotIndexed):  # unknown: accept them
            known = {*await self._known_decisions(distinct), *await self._known_subjects(distinct)}
            if unknown := [id for id in distinct if id not in known]:
                try:
                    self._room.check(reporter, unknown)
                except RateLimited:
                    self.stats.unmatched_refused += len(unknown)
                    raise
                self._room.add(reporter, len(unknown))
        appending: Future[Sequence[int]] = self._loop.create_future()
        append(partial(resolve, appending))
        return await appending

    def _rewarded(self, count: int) -> None:
        self.stats.rewards += count

    def _noted(self, count: int) -> None:
        self.stats.activations_voids += count

    # --- issues ----------------------------------------------------------------------------------

    @property
    def noticed(self) -> dict[str, Noticed]:
        """The issues of this process: what it refused, and the values of fields."""
        return total_of(self._refused, of_fields(self.definition.features))

    @property
    def issues(self) -> list[Issue]:
        """All issues, those of the journal too."""
        return issues_of(total_of(self._journal_issues, self.noticed))

    def note_refused(self, error: Exception) -> None:
        """Count a refused request if it is an issue."""
        self._refused.note_error(error, self._runtime.clock)
        self._log_issues()

    def _log_issues(self) -> None:
        """Log each issue that was noticed again, at most once a minute; nothing that was sent."""
        now = self._runtime.monotonic()
        for issue in self.issues:
            key = issue.name, issue.field
            due, logged = self._logged.get(key, (-math.inf, 0))
            if issue.count > logged and now >= due:
                self._logged[key] = now + ISSUE_LOG_SECONDS, issue.count
                extra = {"bandit": self.definition.name, "issue": issue.name}
                log.warning(issue.what, extra=extra | {"count": issue.count, "do": issue.remedy})

    def decided_at(self, id: str) -> int | None:
        """Return when a decision was made, as far as that is known without a look-up."""
        decision = self.decider.unapplied.find(id)
        return time_of(id) if decision is None else decision.at_us

    # --- reading the journal ---------------------------------------------------------------------

    async def _known_decisions(self, ids: Sequence[str]) -> dict[str, Decision]:
        """Return the decision under each of these ids, if one was made.

        Decisions that wait in the spool are found among the decider's own.

        Raises:
            JournalReadUnavailable: that cannot be known now.
            NotIndexed: the journal never knows, and it was not decided here a moment ago.
        """
        found = {} if self._spool is None else self._made_here(ids, spooled=True)
        rest = [id for id in ids if id not in found]
        if rest:
            try:
                found |= await self._read(lambda journal: journal.decisions(rest))
            except (JournalReadUnavailable, NotIndexed):
                found |= self._made_here(rest, spooled=False)
                if len(found) < len(ids):  # another process may have used the id
                    raise
        return found

    async def _known_subjects(self, ids: Sequence[str]) -> set[str]:
        """Return those of these ids that are of subjects, and were decided for first."""
        subjects = [id for id in ids if id.startswith(subject_id(""))]
        if not subjects:
            return set()
        records = await self._read(lambda journal: journal.records_of(subjects, 1))
        return {one.event.id for one in records if isinstance(one.event, SubjectDecision)}

    def _made_here(self, ids: Sequence[str], *, spooled: bool) -> dict[str, Decision]:
        found = {id: self.decider.unapplied.find(id, spooled=spooled) for id in ids}
        return {id: decision for id, decision in found.items() if decision is not None}

    async def _read(self, work: Callable[[Journal], T]) -> T:
        """Read from the journal in a thread.

        Raises:
            JournalReadUnavailable: it does not answer, or not in time if there is a spool.
        """
        if self._spool is not None and self._spool.status.journal_down:
            raise JournalReadUnavailable("the journal is unavailable: it cannot be read now")
        reading = self._loop.run_in_executor(self._threads, work, self._reader)
        try:
            return await asyncio.wait_for(reading, None if self._spool is None else LOOK_UP_SECONDS)
        except TimeoutError:
            raise JournalReadUnavailable(
                f"the journal has not answered for {LOOK_UP_SECONDS:g} s"
            ) from None

    # --- state -----------------------------------------------------------------------------------

    def details(self, id: str, done: Done[DecisionHistory]) -> None:
        """Read all records of a decision, judged by the rules of the ledger."""
        self._run(self._read(partial(self._read_history, check_id(id))), done)

    def _read_history(self, id: str, reader: Journal) -> DecisionHistory:
        min_reward, max_reward = self.reward_range
        return read_history(
            reader,
            id,
            self.definition.rewards,
            min_reward=min_reward,
            max_reward=max_reward,
            retention=self.definition.retention,
        )

    def change_mode(self, mode: Mode, reason: str, actor: str, done: Done[ModeChanged]) -> None:
        """Change the mode at all deciders within a second; the journal records who and why."""
        event = ModeChanged(self._runtime.clock(), mode, reason, actor)

        def append(journal: Journal) -> ModeChanged:
            journal.append([event])
            return event

        self._run(self._read(append), done)

    def models(self, done: Done[list[ModelState]]) -> None:
        """Read which models an operator can choose; `done` is called with them."""
        self._run(self._read(lambda _: models_in(self._models, self.chosen)), done)

    def choose_model(
        self, version: Version, reason: str, actor: str, done: Done[ModelChosen]
    ) -> None:
        """Have all deciders use this model within a second; the journal records who and why."""

        def append(journal: Journal) -> ModelChosen:
            now = self._runtime.clock()
            event = model_choice(self._models, version, now, reason, actor)
            journal.append([event])
            return event

        self._run(self._read(append), done)

    def erase(self, id: str, actor: str, done: Done[int]) -> None:
        """Erase a decision; `done` is called with 1, or with 0 if its id has no record."""

        def append(journal: Journal) -> int:
            known = bool(journal.records_of([id], 1))
            if known:
                reason, now = "DELETE of the decision", self._runtime.clock()
                journal.append([Erased(erased_key_of(id), now, reason, actor)])
            return int(known)

        self._run(self._read(append), done)

    def erase_subject(self, subject: str, actor: str, done: Done[int]) -> None:
        """Erase a subject; `done` is called with the number of its decisions.

        Nothing happens to a subject that has no record.
        """

        def append(journal: Journal) -> int:
            records = journal.records_of([subject_id(subject)])
            reason, now = "DELETE of the subject", self._runtime.clock()
            events = erasure_of_subject(records, subject, now, reason, actor) if records else []
            if events:
                journal.append(events)
            return max(0, len(events) - 1)

        self._run(self._read(append), done)

    def change_action(self, done: Done[ActionState], **change: Any) -> None:
        """Change an action at all deciders within a second; the journal records who and why.

        Args:
            done: is called with its state, or with the error.
            **change: arguments of :func:`action_change`.
        """

        def append(journal: Journal) -> ActionState:
            now, known = self._runtime.clock(), declared(self.definition.features)
            event = action_change(journal.actions(), known, now, **change)
            journal.append([event])
            return ActionState.of(event, now)

        self._run(self._read(append), done)

    @property
    def actions(self) -> list[ActionState]:
        """The state of each action that the features declare, or that was ever changed."""
        known = declared(self.definition.features)
        return states_at(self.decider.actions, self._runtime.clock(), known)

    @property
    def duplicates(self) -> int | None:
        """Events that the store had and did not write again; None if it does not look."""
        return self._journal.duplicates if isinstance(self._journal, CountsDuplicates) else None

    @property
    def failed_commits(self) -> int:
        """Commits with events of this bandit that failed."""
        return self.commits.failures[self.definition.name]

    @property
    def spool(self) -> SpoolStatus | None:
        """What waits on the local disk; None if there is no spool."""
        return None if self._spool is None else self._spool.status

    @property
    def left_spools(self) -> LeftSpools | None:
        """What processes that died have left on the local disk; None if there is no spool."""
        return None if self.recovery is None else self.recovery.left(self.definition.name)

    def is_stale(self, seconds: float) -> bool:
        """Whether the model is older than that, and a newer one could be had elsewhere."""
        if self.decider.mode in ("baseline", "off") or self.decider.chosen is not None:
            return False  # it needs none, or an operator chose one
        if self.has_other_features:
            return False  # there is none for its features
        if self.age is None:
            return True
        if self.decider.mode == "freeze":
            return False
        # While the store is unavailable no decider has a newer one: all go on with what they have.
        unavailable = self._spool is not None and self._spool.status.journal_down
        return self.age > seconds and not unavailable

    @property
    def slot(self) -> int | None:
        """The slot that new ids should have now on Kafka; None for other stores.

        There, a retry must get the same response.
        """
        if finds_by_id(self._journal) or self._journal.partitions == 1:
            return None
        return self._slots.at(self._runtime.clock())

    def now(self) -> int:
        """Return the time by this process' clock, in microseconds since 1970."""
        return self._runtime.clock()

    @property
    def version(self) -> int:
        """Records that the model has learned from."""
        return self._source.version

    @property
    def age(self) -> float | None:
        """The age of the newest model in seconds; None before the first one."""
        return None if self.model_at is None else (self._runtime.clock() - self.model_at) / 1e6

    def close(self) -> None:
        """Deliver what waits in the spool, if there is one."""
        self._log.close()
        if self._reward_log is not self._log:
            self._reward_log.close()
        self._reader.close()
        self._models.close()

    # --- models, modes and actions ---------------------------------------------------------------

    def _delivered(self, events: Sequence[Event], positions: Sequence[int]) -> None:
        """Note the positions of delivered events; called by the worker of the spool."""
        found = [
            (event.id, position)
            for event, position in zip(events, positions, strict=True)
            if isinstance(event, Decision)
        ]
        with suppress(RuntimeError):  # the loop has ended, and its decider with it
            self._loop.call_soon_threadsafe(self._mark_durable, found)

    def _mark_durable(self, found: Sequence[tuple[str, int]]) -> None:
        for id, position in found:
            self.decider.unapplied.mark_durable(id, position)

    def load(self, published: PublishedModel) -> None:
        """Load a model, if it can be used."""
        self._room.update(published.unmatched)
        self._journal_issues = published.issues
        self._log_issues()
        differs = published.features != self.definition.policy.features
        if differs and not self.has_other_features:
            extra = {"bandit": self.definition.name}
            log.warning("the newest model is for other features: the last one is kept", extra=extra)
        self.has_other_features = differs
        if differs:
            return
        try:
            self._source.load(published, self.decider.unapplied)
        except Exception as error:  # of another policy, or damaged: keep the last one
            self.note("model", error)
            return
        self.model_at = published.at
        self.stats.models += 1

    def take_mode(self, event: ModeChanged) -> None:
        """Switch to this mode."""
        if event == self._switched:
            return
        self._switched = event
        for mode in MODES:
            if mode == event.mode:
                self.decider.change_mode(mode)
                # The reason is in the journal: nothing that a client sent is logged.
                extra = {"bandit": self.definition.name, "mode": mode}
                log.info("mode changed", extra=extra)
                return
        self.note("mode", InvalidInput(f"a newer release knows the mode {event.mode!r}"))

    def take_actions(self, changes: Changes) -> None:
        """Choose only actions that are open from now on."""
        self.decider.actions = changes
        log.info("actions changed", extra={"bandit": self.definition.name})

    def take_chosen(self, event: ModelChosen) -> None:
        """Decide with the model that an operator chose, or with the newest again."""
        self.chosen = event if event.model else None
        try:
            self.decider.use_model(PublishedModel.read(event.model) if event.model else None)
        except Exception as error:  # of another policy, or damaged: keep the last one
            self.note("model", error)
            return
        extra = {"bandit": self.definition.name, "version": event.version}
        log.info("an operator chose the model that decides", extra=extra)

    def note(self, what: str, error: Exception) -> None:
        """Count a failure to load a model, and log its reason once."""
        self.stats.failures[what] += 1
        if str(error) != self.stats.last_error:
            log.warning("no new model", extra={"bandit": self.definition.name, "why": str(error)})
        self.stats.last_error = str(error)


class UnmatchedRoom:
    """Counts unmatched events at the learner, and those accepted here since its last model.

    An event that comes before its decision waits at the learner, in memory. To look up the decision
    of every event would be expensive. So while there is ample room, events are accepted without a
    look-up, and each counts as if its decision were unknown. Beyond that, decisions are looked up,
    and only events of unknown ones count.

    >>> room = UnmatchedRoom()
    >>> room.is_ample("shop", 1), room.is_ample("shop", MAX_OF_REPORTER)
    (True, False)
    """

    def __init__(self) -> None:
        self._waiting: Mapping[str, int] = {}
        # Of the last model, and of the one before it, which may not have read them all.
        self._recent: Counter[str] = Counter()
        self._earlier: Counter[str] = Counter()

    def update(self, waiting: Mapping[str, int]) -> None:
        """Load the counts of a new model: unknown ids by reporter."""
        self._waiting = waiting
        self._earlier, self._recent = self._recent, Counter()

    def add(self, reporter: str, count: int) -> None:
        """Count events that were accepted and may be for unknown decisions."""
        self._recent[reporter] += count

    def is_ample(self, reporter: str, count: int) -> bool:
        """Whether so many more events can be accepted without being looked up."""
        whole, own = self._used(reporter)
        return 2 * (whole + count) <= MAX_UNMATCHED and 2 * (own + count) <= MAX_OF_REPORTER

    def check(self, reporter: str, unknown: list[str]) -> None:
        """Refuse events for unknown decisions if there is no room for them.

        Raises:
            RateLimited: too many wait already.
        """
        whole, own = self._used(reporter)
        if own + len(unknown) > MAX_OF_REPORTER:
            waiting = f"{own:,} events of this key for unknown decisions wait already"
            limit = MAX_OF_REPORTER
        elif whole + len(unknown) > MAX_UNMATCHED:
            waiting = f"{whole:,} events for unknown decisions wait already"
            limit = MAX_UNMATCHED
        else:
            return
        message = f"no decision has the id {unknown[0]!r}, and {waiting} (limit {limit:,})"
        if unknown[0].startswith(subject_id("")):
            message = f"{waiting} (limit {limit:,}), and rewards of subjects may not be credited"
        remedy = "send the ids of decisions, after their decisions"
        raise RateLimited(f"{message}: {remedy}", RETRY_SECONDS)

    def _used(self, reporter: str) -> tuple[int, int]:
        counts = (self._waiting, self._recent, self._earlier)
        whole = sum(sum(one.values()) for one in counts)
        return whole, sum(one.get(reporter, 0) for one in counts)


class ServedBandits(dict[str, ServedBandit]):
    """Serves bandits, by name, over three connections however many they are.

    Args:
        definitions: of the bandits.
        store: of their journals.
        loop: the requests' event loop.
        runtime: time and threads.
        spools: where events wait while the store is unavailable; None to refuse them then.
        seed: of the choices.
        kernels: to use instead of the best available.
        tuning: sizes, and how ids are made.

    Attributes:
        commits: makes events durable.
        reward_commits: makes rewards durable; separate on Kafka, where each partition of a commit
            costs a record.
        writing: opens the journals that events are committed to.
        rewarding: opens those that rewards are committed to.
        reading: opens those that look-ups read, so that none waits for a commit.
        polling: the connection for models, modes and keys.
        threads: in which look-ups read.
        forwarder: of the spools.
    """

    def __init__(
        self,
        definitions: Sequence[Definition],
        store: Store,
        loop: asyncio.AbstractEventLoop,
        runtime: Runtime,
        *,
        spools: Spools | None = None,
        seed: int | None = None,
        kernels: Kernels | None = None,
        tuning: Tuning = USUAL,
    ) -> None:
        super().__init__()
        wait = PATIENT_WAIT if spools is None else WAIT
        self.writing = self.rewarding = store.session(wait=wait)
        self.polling = store.session(wait=wait)
        self.forwarder = None if spools is None else spools.forwarder()
        self._log: BatchLog = self.writing
        if self.forwarder is not None:
            self._log = SpooledLog(self.writing, self.forwarder)
        self.commits = self.reward_commits = GroupCommit(self._log, loop, runtime)
        if self.forwarder is None and not finds_by_id(store):
            self.rewarding = store.session(wait=wait)
            self.reward_commits = GroupCommit(self.rewarding, loop, runtime, wait=REWARD_SECONDS)
        self.loop, self.runtime, self.spools = loop, runtime, spools
        self.reading = store.session(wait=wait)
        self.threads = ThreadPoolExecutor(1, thread_name_prefix="belated look-ups")
        self.poll = ModelPoll(self.polling, self, loop, runtime)
        self._recovery: Recovery | None = None
        try:
            for definition in definitions:
                self[definition.name] = ServedBandit(
                    definition, self, seed=seed, kernels=kernels, tuning=tuning
                )
            self.poll.start()
            if spools is not None:
                self._recovery = spools.recover(self.polling, list(self), runtime)
                for bandit in self.values():
                    bandit.recovery = self._recovery
        except Exception:
            self.close()
            raise

    def close(self) -> None:
        """Commit what waits, and close the store."""
        self.commits.close()
        if self.reward_commits is not self.commits:
            self.reward_commits.close()
            self.rewarding.close()
        if self._recovery is not None:
            self._recovery.stop(2 * WAIT)
        self.poll.stop()
        for bandit in self.values():
            bandit.close()
        self.threads.shutdown(wait=False, cancel_futures=True)
        self._log.close()
        self.reading.close()
        self.polling.close()


@dataclass(eq=False)
class ModelPoll:
    """Polls for models, modes and paused actions of all bandits; less often while nothing changes.

    Args:
        session: for this alone.
        bandits: by name.
        loop: of the bandits.
        runtime: time and threads.
    """

    session: StoreSession
    bandits: Mapping[str, ServedBandit]
    loop: asyncio.AbstractEventLoop
    runtime: Runtime

    def __post_init__(self) -> None:
        self._monotonic = self.runtime.monotonic
        self._numbers: dict[str, int] = {}
        self._versions: dict[str, int] = {}  # of the changes of actions
        self._choices: dict[str, int] = {}  # of the choices of models
        self._model_due = self._mode_due = 0.0
        self._pause = POLL_SECONDS
        self._worker: Worker | None = None
        #: Whether the journal was removed or replaced under this process.
        self.replaced = False

    def start(self) -> None:
        """Load what there is now, then poll in a thread.

        Raises:
            JournalError: it cannot be read.
        """
        self._numbers = dict.fromkeys(self.bandits, 0)
        self._versions = dict.fromkeys(self.bandits, 0)
        self._choices = dict.fromkeys(self.bandits, 0)
        for call in (*self._look_for_modes(), *self._look_for_models()):
            call()
        self._mode_due = self._monotonic() + MODE_SECONDS
        self._worker = self.runtime.start_worker("belated models", self._step)

    def stop(self) -> None:
        """Stop polling."""
        if self._worker is not None:
            self._worker.stop()

    def _step(self) -> float:
        now = self._monotonic()
        calls: list[Callable[[], None]] = []
        try:
            if now >= self._mode_due:
                calls += self._look_for_modes()
                self._mode_due = now + MODE_SECONDS
            if now >= self._model_due:
                models = self._look_for_models()
                calls += models
                self._pause = POLL_SECONDS if models else min(2 * self._pause, MAX_POLL_SECONDS)
            self.replaced = False
        except JournalError as error:  # it is unavailable: go on with what there is
            self.replaced = isinstance(error, JournalReplaced)
            for one in self.bandits.values():
                one.note("board", error)
            return MODEL_RETRY_SECONDS
        if calls:
            self.loop.call_soon_threadsafe(self._apply, calls)
        return self._pause

    def _apply(self, calls: list[Callable[[], None]]) -> None:
        start = self._monotonic()
        for call in calls:
            call()
        now = self._monotonic()
        self._model_due = now + (now - start) / MAX_LOADING

    def _look_for_modes(self) -> list[Callable[[], None]]:
        modes = self.session.modes(list(self.bandits))
        calls: list[Callable[[], None]] = []
        calls += [partial(self.bandits[name].take_mode, event) for name, event in modes.items()]
        for name, (version, changes) in self.session.actions(self._versions).items():
            self._versions[name] = version
            calls.append(partial(self.bandits[name].take_actions, changes))
        for name, (version, event) in self.session.chosen_models(self._choices).items():
            self._choices[name] = version
            calls.append(partial(self.bandits[name].take_chosen, event))
        return calls

    def _look_for_models(self) -> list[Callable[[], None]]:
        calls: list[Callable[[], None]] = []
        for name, (number, data) in self.session.published(self._numbers).items():
            bandit, self._numbers[name] = self.bandits[name], number
            try:
                model = PublishedModel.read(data)
            except (UnsupportedFormat, CorruptJournal) as error:  # one may come that can be read
                bandit.note("board", error)
            else:
                calls.append(partial(bandit.load, model))
        return calls
