"""The bandits of a decider process, which choose actions, commit decisions, and then respond.

All bandits of a process share connections, threads and commits.
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

#: Age in seconds after which a model is stale.
MAX_MODEL_AGE = 600.0
#: Seconds after which the processing of a batch yields to other requests on the event loop.
TURN_SECONDS = 0.01
#: Timeout of lookups in a journal that has a spool, in seconds.
LOOK_UP_SECONDS = 0.5
#: Maximum number of unmatched events (events for unknown decisions) at the learner, in total and
#: per reporter.
MAX_UNMATCHED, MAX_OF_REPORTER = 100_000, 25_000
#: Seconds after which callers may retry a rejected event.
RETRY_SECONDS = 60.0
#: Minimum interval between log messages about a failing policy, in seconds.
FALLBACK_LOG_SECONDS = 60.0
#: Minimum interval between log messages about the same issue, in seconds.
ISSUE_LOG_SECONDS = 60.0
#: Timeout of a store without a spool, in seconds.
PATIENT_WAIT = 10.0
#: Seconds for which rewards are collected into one commit on Kafka, where each commit writes one
#: record per partition.
REWARD_SECONDS = 0.25
#: Intervals in seconds: between polls for models while new models arrive, the maximum between such
#: polls, between polls for modes, and after a failure.
POLL_SECONDS, MAX_POLL_SECONDS, MODE_SECONDS, MODEL_RETRY_SECONDS = 0.05, 0.25, 0.25, 0.2
#: Maximum share of the event loop's time spent on loading models.
MAX_LOADING = 0.01

log = logging.getLogger("belated.service")

T = TypeVar("T")


@dataclass
class RequestStats:
    """A bandit's counters for the metrics, which never decrease."""

    decisions: int = 0
    rewards: int = 0
    activations_voids: int = 0
    unmatched_refused: int = 0
    models: int = 0
    entropy: float = 0.0  # Σ -log p of the chosen actions
    #: Response times of decision requests.
    seconds: Histogram = field(default_factory=lambda: Histogram(SECONDS))
    failures: Counter[str] = field(default_factory=Counter)  # by kind of failure
    last_error: str = ""


class Repeated(NamedTuple):
    """An earlier decision that is returned again because it is sticky."""

    decision: Decision


class ServedBandit:
    """Handles the requests for one bandit.

    Except for :meth:`close`, all methods are called on the event loop.

    Args:
        definition: Definition of the bandit.
        shared: Connections, threads and commits that all bandits of this process share.
        seed: Seed for random choices.
        kernels: Kernels to use instead of the best available ones.
        tuning: Internal sizes and the id generator.
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
        #: Report for the console; None before the service has started.
        self.report_page: BanditReport | None = None
        self._runtime, self._loop, self.commits = shared.runtime, shared.loop, shared.commits
        policy, name = definition.policy, definition.name
        #: Minimum and maximum accepted reward.
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
        #: Delivers the spools of stopped processes; None if there are no spools.
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
        # Issues in requests that this process has rejected, and issues in the journal as of the
        # last model.
        self._refused, self._journal_issues = IssueCounter(), dict[str, Noticed]()
        # When an issue may be logged again, and how often it had occurred when it was last logged,
        # by kind and field.
        self._logged: dict[tuple[str, str], tuple[float, int]] = {}
        self._tasks: set[Future[Any]] = set()
        # For each subject, a future that completes once the most recent sticky request has been
        # answered.
        self._sticky_turns: dict[str, Future[None]] = {}
        # Pending lookups of current decisions, by subject: the earliest time of a decision that is
        # still current, and the future for the result.
        self._look_ups: dict[str, tuple[int, Future[Decision | None]]] = {}
        self._looking_up = False
        #: When the newest model was published, in microseconds since 1970; None if there is none.
        self.model_at: int | None = None
        #: Whether the newest model is for different features, as during a rolling deployment.
        self.has_other_features = False
        self._mode_event: ModeChanged | None = None
        #: The model that an operator chose; None if the newest model is in use.
        self.chosen: ModelChosen | None = None

    # --- deciding --------------------------------------------------------------------------------

    def decide_many(
        self, parsed: Iterable[tuple[ParsedRequest, Rows]], done: Done[list[Decision]]
    ) -> None:
        """Make the decisions for a batch. Large batches are parsed in several event-loop turns.

        Args:
            parsed: Requests and their rows; either all or none are decided.
            done: Called with the decisions or an error.
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
        """Yield to the event loop if this turn has taken too long; return when the turn began."""
        if self._runtime.monotonic() <= turn + TURN_SECONDS:
            return turn
        await asyncio.sleep(0)
        return self._runtime.monotonic()

    def decide(
        self, requests: Sequence[ParsedRequest], rows: Sequence[Rows], done: Done[list[Decision]]
    ) -> None:
        """Make the decisions for one caller's requests, in a single commit.

        Args:
            requests: The requests; either all or none are decided.
            rows: Rows of each request, packed as float32 numbers.
            done: Called with the decisions once they are durable, or with an error.

        Raises:
            BanditOff: the bandit's mode is ``off``.
        """
        if self.decider.mode == "off":
            raise BanditOff()
        start = self._runtime.monotonic()
        for request in requests:
            if request.subject is not None:
                check_subject(request.subject, request.id, self._journal.partitions)
        ids = [request.id for request in requests if request.id is not None]
        if ids:
            self._run(self._decide_with_ids(requests, rows, ids, start), done)
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
        """Return the subject's current decision if there is one; otherwise make a new decision.

        Requests for the same subject are handled one at a time, so that concurrent requests get the
        same decision. There is no such guarantee across decider processes.

        Args:
            subject: Subject of the request. It is an error to pass None.
            names: Names of the offered actions; None if the request contains rows instead.
            span: How long a decision stays current, in microseconds.
            parse: Returns the request and its rows. Called only for a new decision.
            done: Called with the decision or an error.
        """
        if subject is None:
            raise InvalidInput("`sticky` requires `subject`: send both", None)
        if not finds_by_id(self._journal):
            message = "this store cannot look up decisions by subject, which `sticky` requires"
            raise InvalidInput(f"{message}: omit `sticky`, or use SQLite or PostgreSQL", None)
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
        previous = self._sticky_turns.get(subject)
        turn = self._sticky_turns[subject] = self._loop.create_future()
        try:
            if previous is not None:
                await previous
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
            if self._sticky_turns[subject] is turn:
                del self._sticky_turns[subject]

    async def _current(self, subject: str, since: int) -> Decision | None:
        """Look up a subject's current decision. Concurrent lookups are batched."""
        result: Future[Decision | None] = self._loop.create_future()
        self._look_ups[subject] = since, result
        if not self._looking_up:
            self._looking_up = True
            self._run(self._run_look_ups(), lambda _: None)
        return await result

    async def _run_look_ups(self) -> None:
        """Run pending lookups in batches until none are left."""
        while self._look_ups:
            look_ups, self._look_ups = self._look_ups, {}
            since = {subject: at for subject, (at, _) in look_ups.items()}
            try:
                decisions = await self._read(partial(read_current, since=since))
            except Exception as error:
                for _, result in look_ups.values():
                    resolve(result, error)
            else:
                for subject, (_, result) in look_ups.items():
                    resolve(result, decisions.get(subject))
        self._looking_up = False

    def _run(self, work: Coroutine[Any, Any, T], done: Done[T]) -> None:
        """Run a coroutine as a task, and call `done` with its result or error."""
        task = self._loop.create_task(work)
        self._tasks.add(task)  # the event loop holds only a weak reference
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(partial(pass_on, done))

    async def _decide_with_ids(
        self,
        requests: Sequence[ParsedRequest],
        rows: Sequence[Rows],
        ids: Sequence[str],
        start: float,
    ) -> list[Decision]:
        if len(set(ids)) < len(ids):
            raise InvalidInput("an id occurs twice in this request: each decision needs its own id")
        are_fallbacks = requests[0].fallback is not None
        if any((request.fallback is None) is are_fallbacks for request in requests):
            message = "this batch has requests with and without `fallback`: send two batches"
            raise InvalidInput(message, None)
        # An id that is sent for the first time has no decision yet. If the client retries before
        # the first attempt is answered, it is no longer waiting for the first response.
        retried = [
            request.id
            for request in requests
            if request.id is not None and not request.first_attempt
        ]
        try:
            stored = await self._known_decisions(retried) if retried else {}
        except NotIndexed:
            if not are_fallbacks:
                raise
            stored = {}  # if two decisions have the same id, the first one committed counts
        await self._check_same(requests, rows, stored)
        new = [n for n, request in enumerate(requests) if request.id not in stored]
        decisions: list[Decision] = []
        if new:
            deciding: Future[list[Decision]] = self._loop.create_future()
            decide = self._batcher.record if are_fallbacks else self._batcher.decide
            decide(
                [requests[n] for n in new],
                [rows[n] for n in new],
                self._count,
                partial(resolve, deciding),
            )
            decisions = await deciding
            # Another decider may already have committed a decision with the same id.
            await self._check_same(requests, rows, {event.id: event for event in decisions})
        new_decisions = iter(decisions)
        result = [
            stored[request.id] if request.id in stored else next(new_decisions)
            for request in requests
        ]
        self.stats.seconds.add(self._runtime.monotonic() - start)
        return result

    async def _check_same(
        self,
        requests: Sequence[ParsedRequest],
        rows: Sequence[Rows],
        known: Mapping[str, Decision],
    ) -> None:
        """Refuse a request whose id was used with different rows, because it is not a retry."""
        turn = self._runtime.monotonic()
        for request, data in zip(requests, rows, strict=True):
            if request.id is not None and request.id in known:
                table = table_of([data], self.definition.policy.row_width)
                check_same(known[request.id], table, self.definition.features)
                turn = await self._yield_if_due(turn)

    def _answered(self, start: float, decisions: Sequence[Decision]) -> None:
        self._count(decisions)
        self.stats.seconds.add(self._runtime.monotonic() - start)

    def _count(self, decisions: Sequence[Decision]) -> None:
        for event in decisions:
            self.stats.entropy -= math.log(event.propensity)
        self.stats.decisions += len(decisions)
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
        """Append rewards in one commit.

        Rewards for known decisions are always accepted. Rewards for unknown decisions wait for the
        decision to arrive, but are refused with :class:`RateLimited` if too many are waiting.
        """
        append = partial(self.reward_commits.append, self._reward_log, rewards, self._count_rewards)
        self._admit(rewards[0].reporter, [reward.id for reward in rewards], append, done)

    def append_event(self, event: Mark, done: Done[Sequence[int]]) -> None:
        """Append an activation or void, under the same conditions as rewards."""
        append = partial(self.commits.append, self._log, [event], self._count_marks)
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
        """Look up which decisions are unknown, then append the events."""
        distinct = list(dict.fromkeys(ids))
        with suppress(JournalReadUnavailable, NotIndexed):  # if lookups fail, accept all events
            stored = {*await self._known_decisions(distinct), *await self._known_subjects(distinct)}
            if unknown := [id for id in distinct if id not in stored]:
                try:
                    self._room.check(reporter, unknown)
                except RateLimited:
                    self.stats.unmatched_refused += len(unknown)
                    raise
                self._room.add(reporter, len(unknown))
        appending: Future[Sequence[int]] = self._loop.create_future()
        append(partial(resolve, appending))
        return await appending

    def _count_rewards(self, count: int) -> None:
        self.stats.rewards += count

    def _count_marks(self, count: int) -> None:
        self.stats.activations_voids += count

    # --- issues ----------------------------------------------------------------------------------

    @property
    def noticed(self) -> dict[str, Noticed]:
        """The issues seen by this process: rejected requests and unexpected field values."""
        return total_of(self._refused, of_fields(self.definition.features))

    @property
    def issues(self) -> list[Issue]:
        """All issues, including those in the journal."""
        return issues_of(total_of(self._journal_issues, self.noticed))

    def note_refused(self, error: Exception) -> None:
        """Count a rejected request as an issue if its error has an ``issue``."""
        self._refused.note_error(error, self._runtime.clock)
        self._log_issues()

    def _log_issues(self) -> None:
        """Log each issue that has occurred again, at most once per minute and without user data."""
        now = self._runtime.monotonic()
        for issue in self.issues:
            key = issue.name, issue.field
            due, logged = self._logged.get(key, (-math.inf, 0))
            if issue.count > logged and now >= due:
                self._logged[key] = now + ISSUE_LOG_SECONDS, issue.count
                extra = {"bandit": self.definition.name, "issue": issue.name}
                log.warning(issue.what, extra=extra | {"count": issue.count, "do": issue.remedy})

    def decided_at(self, id: str) -> int | None:
        """Return when a decision was made; None if that would require a lookup."""
        decision = self.decider.unapplied.find(id)
        return time_of(id) if decision is None else decision.at_us

    # --- reading the journal ---------------------------------------------------------------------

    async def _known_decisions(self, ids: Sequence[str]) -> dict[str, Decision]:
        """Return the existing decisions with these ids, by id.

        Decisions in the spool are included, as part of this process's unapplied decisions.

        Raises:
            JournalReadUnavailable: this process does not know an id, and the journal cannot be
                read.
            NotIndexed: this process does not know an id, and the store cannot look up decisions.
        """
        decisions = {} if self._spool is None else self._recent_decisions(ids, spooled=True)
        missing = [id for id in ids if id not in decisions]
        if missing:
            try:
                decisions |= await self._read(lambda journal: journal.decisions(missing))
            except (JournalReadUnavailable, NotIndexed):
                decisions |= self._recent_decisions(missing, spooled=False)
                if len(decisions) < len(ids):  # other processes may know the remaining ids
                    raise
        return decisions

    async def _known_subjects(self, ids: Sequence[str]) -> set[str]:
        """Return the ids of subjects whose first record is a decision."""
        subjects = [id for id in ids if id.startswith(subject_id(""))]
        if not subjects:
            return set()
        records = await self._read(lambda journal: journal.records_of(subjects, 1))
        return {
            record.event.id for record in records if isinstance(record.event, SubjectDecision)
        }  # fmt: skip

    def _recent_decisions(self, ids: Sequence[str], *, spooled: bool) -> dict[str, Decision]:
        """Return this process's decisions with these ids that no model includes yet, by id."""
        decisions = {id: self.decider.unapplied.find(id, spooled=spooled) for id in ids}
        return {id: decision for id, decision in decisions.items() if decision is not None}

    async def _read(self, work: Callable[[Journal], T]) -> T:
        """Read from the journal in a thread.

        Raises:
            JournalReadUnavailable: the journal does not respond. With a spool, the timeout is
                short.
        """
        if self._spool is not None and self._spool.status.journal_down:
            raise JournalReadUnavailable("the journal is unavailable and cannot be read: retry")
        reading = self._loop.run_in_executor(self._threads, work, self._reader)
        try:
            return await asyncio.wait_for(reading, None if self._spool is None else LOOK_UP_SECONDS)
        except TimeoutError:
            raise JournalReadUnavailable(
                f"the journal did not respond within {LOOK_UP_SECONDS:g} s: retry"
            ) from None

    # --- state -----------------------------------------------------------------------------------

    def details(self, id: str, done: Done[DecisionHistory]) -> None:
        """Read all records of a decision and their effects, and call `done` with the result."""
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
        """Append a mode change, which takes effect in all deciders within a second.

        Args:
            mode: New mode.
            reason: Reason for the change.
            actor: Name of the API key.
            done: Called with the event or an error.
        """
        event = ModeChanged(self._runtime.clock(), mode, reason, actor)

        def append(journal: Journal) -> ModeChanged:
            journal.append([event])
            return event

        self._run(self._read(append), done)

    def models(self, done: Done[list[ModelState]]) -> None:
        """Read the list of models that an operator can choose from, and call `done` with it."""
        self._run(self._read(lambda _: models_in(self._models, self.chosen)), done)

    def choose_model(
        self, version: Version, reason: str, actor: str, done: Done[ModelChosen]
    ) -> None:
        """Append the choice of a model, which takes effect in all deciders within a second.

        Args:
            version: Version of the model, or ``"latest"``.
            reason: Reason for the choice.
            actor: Name of the API key.
            done: Called with the event or an error.
        """

        def append(journal: Journal) -> ModelChosen:
            now = self._runtime.clock()
            event = model_choice(self._models, version, now, reason, actor)
            journal.append([event])
            return event

        self._run(self._read(append), done)

    def erase(self, id: str, actor: str, done: Done[int]) -> None:
        """Erase a decision, and call `done` with 1, or with 0 if the id is unknown."""

        def append(journal: Journal) -> int:
            exists = bool(journal.records_of([id], 1))
            if exists:
                reason, now = "DELETE of the decision", self._runtime.clock()
                journal.append([Erased(erased_key_of(id), now, reason, actor)])
            return int(exists)

        self._run(self._read(append), done)

    def erase_subject(self, subject: str, actor: str, done: Done[int]) -> None:
        """Erase a subject, and call `done` with the number of decisions erased."""

        def append(journal: Journal) -> int:
            records = journal.records_of([subject_id(subject)])
            reason, now = "DELETE of the subject", self._runtime.clock()
            events = erasure_of_subject(records, subject, now, reason, actor) if records else []
            if events:
                journal.append(events)
            return max(0, len(events) - 1)

        self._run(self._read(append), done)

    def change_action(self, done: Done[ActionState], **change: Any) -> None:
        """Append a change to an action, which takes effect in all deciders within two seconds.

        Args:
            done: Called with the state of the action or an error.
            **change: Arguments of :func:`action_change`.
        """

        def append(journal: Journal) -> ActionState:
            now, declared_actions = self._runtime.clock(), declared(self.definition.features)
            event = action_change(journal.actions(), declared_actions, now, **change)
            journal.append([event])
            return ActionState.of(event, now)

        self._run(self._read(append), done)

    @property
    def actions(self) -> list[ActionState]:
        """The state of each action that the features declare or that has ever been changed."""
        declared_actions = declared(self.definition.features)
        return states_at(self.decider.actions, self._runtime.clock(), declared_actions)

    @property
    def duplicates(self) -> int | None:
        """The number of duplicate events that the store has skipped; None if not counted."""
        return self._journal.duplicates if isinstance(self._journal, CountsDuplicates) else None

    @property
    def failed_commits(self) -> int:
        """The number of failed commits that contained events of this bandit."""
        return self.commits.failures[self.definition.name]

    @property
    def spool(self) -> SpoolStatus | None:
        """The status of this process's spool; None if there is no spool."""
        return None if self._spool is None else self._spool.status

    @property
    def left_spools(self) -> LeftSpools | None:
        """The status of the spools of stopped processes; None if there is no spool."""
        return None if self.recovery is None else self.recovery.left(self.definition.name)

    def is_stale(self, seconds: float) -> bool:
        """Return whether the model is too old and other processes may have a newer model.

        Args:
            seconds: Maximum age of the model.
        """
        if self.decider.mode in ("baseline", "off") or self.decider.chosen is not None:
            return False  # the bandit needs no new model
        if self.has_other_features:
            return False  # there is no newer model for the bandit's features
        if self.age is None:
            return True
        if self.decider.mode == "freeze":
            return False
        # While the store is unavailable, no decider can have a newer model.
        unavailable = self._spool is not None and self._spool.status.journal_down
        return self.age > seconds and not unavailable

    @property
    def slot(self) -> int | None:
        """The slot that clients should use for new ids; None if the store can look up decisions.

        Without lookups, as on Kafka, a retry is recognized only if it goes to the same partition.
        """
        if finds_by_id(self._journal) or self._journal.partitions == 1:
            return None
        return self._slots.at(self._runtime.clock())

    def now(self) -> int:
        """Return the current time of this process's clock, in microseconds since 1970."""
        return self._runtime.clock()

    @property
    def version(self) -> int:
        """The number of records that the model includes."""
        return self._source.version

    @property
    def age(self) -> float | None:
        """The age of the newest model in seconds; None before the first model."""
        return None if self.model_at is None else (self._runtime.clock() - self.model_at) / 1e6

    def close(self) -> None:
        """Deliver the events in the spool and close the journals."""
        self._log.close()
        if self._reward_log is not self._log:
            self._reward_log.close()
        self._reader.close()
        self._models.close()

    # --- models, modes and actions ---------------------------------------------------------------

    def _delivered(self, events: Sequence[Event], positions: Sequence[int]) -> None:
        """Mark delivered decisions as durable. Called by the spool's worker."""
        decisions = [
            (event.id, position)
            for event, position in zip(events, positions, strict=True)
            if isinstance(event, Decision)
        ]
        with suppress(RuntimeError):  # the event loop has been closed
            self._loop.call_soon_threadsafe(self._mark_durable, decisions)

    def _mark_durable(self, decisions: Sequence[tuple[str, int]]) -> None:
        for id, position in decisions:
            self.decider.unapplied.mark_durable(id, position)

    def load(self, published: PublishedModel) -> None:
        """Use a newly published model, unless it is for different features or cannot be loaded."""
        self._room.update(published.unmatched)
        self._journal_issues = published.issues
        self._log_issues()
        differs = published.features != self.definition.policy.features
        if differs and not self.has_other_features:
            extra = {"bandit": self.definition.name}
            log.warning(
                "the newest model is for other features: continuing with the previous model",
                extra=extra,
            )
        self.has_other_features = differs
        if differs:
            return
        try:
            self._source.load(published, self.decider.unapplied)
        except Exception as error:  # a model of another policy, or damaged: keep the previous one
            self.note("model", error)
            return
        self.model_at = published.at
        self.stats.models += 1

    def take_mode(self, event: ModeChanged) -> None:
        """Switch to the mode that an event sets."""
        if event == self._mode_event:
            return
        self._mode_event = event
        for mode in MODES:
            if mode == event.mode:
                self.decider.change_mode(mode)
                # Do not log the reason, because it is text from a client. It is in the journal.
                extra = {"bandit": self.definition.name, "mode": mode}
                log.info("mode changed", extra=extra)
                return
        self.note("mode", InvalidInput(f"unknown mode {event.mode!r}: upgrade this process"))

    def take_actions(self, changes: Changes) -> None:
        """Apply changes to actions, so that paused and retired actions are no longer chosen."""
        self.decider.actions = changes
        log.info("actions changed", extra={"bandit": self.definition.name})

    def take_chosen(self, event: ModelChosen) -> None:
        """Use the model that an operator chose, or return to the newest model."""
        self.chosen = event if event.model else None
        try:
            self.decider.use_model(PublishedModel.read(event.model) if event.model else None)
        except Exception as error:  # a model of another policy, or damaged: keep the previous one
            self.note("model", error)
            return
        extra = {"bandit": self.definition.name, "version": event.version}
        log.info("an operator chose a model", extra=extra)

    def note(self, what: str, error: Exception) -> None:
        """Count a failure to load a model, and log each reason once."""
        self.stats.failures[what] += 1
        if str(error) != self.stats.last_error:
            log.warning(
                "cannot load a new model", extra={"bandit": self.definition.name, "why": str(error)}
            )
        self.stats.last_error = str(error)


class UnmatchedRoom:
    """Limits the number of unmatched events, which the learner keeps in memory.

    If an event arrives before its decision, the learner keeps the event until the decision arrives.
    Looking up the decision for every event would be expensive. While there is ample room, events
    are therefore accepted without a lookup, and each one counts as unmatched. Once half of the
    room is used, decisions are looked up, and only events for unknown decisions count.

    >>> room = UnmatchedRoom()
    >>> room.is_ample("shop", 1), room.is_ample("shop", MAX_OF_REPORTER)
    (True, False)
    """

    def __init__(self) -> None:
        self._unmatched: Mapping[str, int] = {}  # as counted by the learner
        # Events accepted since the last model, and between the last two models. The latter are
        # counted because the last model may not include all of them.
        self._recent: Counter[str] = Counter()
        self._earlier: Counter[str] = Counter()

    def update(self, unmatched: Mapping[str, int]) -> None:
        """Set the number of unmatched events by reporter, as counted in a new model."""
        self._unmatched = unmatched
        self._earlier, self._recent = self._recent, Counter()

    def add(self, reporter: str, count: int) -> None:
        """Count events that were accepted and may be for unknown decisions."""
        self._recent[reporter] += count

    def is_ample(self, reporter: str, count: int) -> bool:
        """Return whether `count` more events can be accepted without looking up their decisions."""
        total, own = self._used(reporter)
        return 2 * (total + count) <= MAX_UNMATCHED and 2 * (own + count) <= MAX_OF_REPORTER

    def check(self, reporter: str, unknown: list[str]) -> None:
        """Refuse events for unknown decisions if there is no room for them.

        Raises:
            RateLimited: too many events are already waiting.
        """
        total, own = self._used(reporter)
        if own + len(unknown) > MAX_OF_REPORTER:
            waiting = f"{own:,} events from this key are already waiting for unknown decisions"
            limit = MAX_OF_REPORTER
        elif total + len(unknown) > MAX_UNMATCHED:
            waiting = f"{total:,} events are already waiting for unknown decisions"
            limit = MAX_UNMATCHED
        else:
            return
        message = f"unknown decision id {unknown[0]!r}, and {waiting} (limit {limit:,})"
        remedy = "use the ids of existing decisions, and send events after their decisions"
        if unknown[0].startswith(subject_id("")):
            message = f"{waiting} (limit {limit:,}), and this subject has no decision"
            remedy = "send rewards of a subject after its first decision"
        raise RateLimited(f"{message}: {remedy}", RETRY_SECONDS)

    def _used(self, reporter: str) -> tuple[int, int]:
        """Return the number of events that count as unmatched, in total and for the reporter."""
        counts = (self._unmatched, self._recent, self._earlier)
        total = sum(sum(by_reporter.values()) for by_reporter in counts)
        return total, sum(by_reporter.get(reporter, 0) for by_reporter in counts)


class ServedBandits(dict[str, ServedBandit]):
    """The bandits that a process serves, by name.

    The bandits share a few connections to the store, regardless of their number.

    Args:
        definitions: Definitions of the bandits.
        store: Store that contains the journals.
        loop: Event loop that handles the requests.
        runtime: Clocks and threads.
        spools: Local spools for events that arrive while the store is unavailable; None to refuse
            events during an outage.
        seed: Seed for random choices.
        kernels: Kernels to use instead of the best available ones.
        tuning: Internal sizes and the id generator.

    Attributes:
        commits: Commits events.
        reward_commits: Commits rewards. On Kafka, rewards are committed separately, because each
            commit writes one record per partition.
        writing: Session for committing events.
        rewarding: Session for committing rewards.
        reading: Session for lookups, so that they do not wait for commits.
        polling: Session for polling for models, modes and keys.
        threads: Threads for lookups.
        forwarder: Forwarder of the spools; None if there are no spools.
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
        """Commit pending events and close the store."""
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
    """Polls the store for new models, modes and states of actions, for all bandits.

    Polling is less frequent while nothing changes.

    Args:
        session: Session used only for polling.
        bandits: Bandits by name.
        loop: Event loop of the bandits.
        runtime: Clocks and threads.
    """

    session: StoreSession
    bandits: Mapping[str, ServedBandit]
    loop: asyncio.AbstractEventLoop
    runtime: Runtime

    def __post_init__(self) -> None:
        self._monotonic = self.runtime.monotonic
        # Last known versions of models, changes to actions, and chosen models, by bandit.
        self._model_numbers: dict[str, int] = {}
        self._action_versions: dict[str, int] = {}
        self._choice_versions: dict[str, int] = {}
        self._model_due = self._mode_due = 0.0
        self._pause = POLL_SECONDS
        self._worker: Worker | None = None
        #: Whether the journal was removed or replaced while this process was running.
        self.replaced = False

    def start(self) -> None:
        """Load the current models, modes and states of actions, then start polling in a thread.

        Raises:
            JournalError: the store cannot be read.
        """
        self._model_numbers = dict.fromkeys(self.bandits, 0)
        self._action_versions = dict.fromkeys(self.bandits, 0)
        self._choice_versions = dict.fromkeys(self.bandits, 0)
        for call in (*self._poll_modes(), *self._poll_models()):
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
                calls += self._poll_modes()
                self._mode_due = now + MODE_SECONDS
            if now >= self._model_due:
                models = self._poll_models()
                calls += models
                self._pause = POLL_SECONDS if models else min(2 * self._pause, MAX_POLL_SECONDS)
            self.replaced = False
        except JournalError as error:  # continue with the current models
            self.replaced = isinstance(error, JournalReplaced)
            for bandit in self.bandits.values():
                bandit.note("board", error)
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

    def _poll_modes(self) -> list[Callable[[], None]]:
        """Return calls that apply changes to modes, actions and chosen models."""
        modes = self.session.modes(list(self.bandits))
        calls: list[Callable[[], None]] = []
        calls += [partial(self.bandits[name].take_mode, event) for name, event in modes.items()]
        for name, (version, changes) in self.session.actions(self._action_versions).items():
            self._action_versions[name] = version
            calls.append(partial(self.bandits[name].take_actions, changes))
        for name, (version, event) in self.session.chosen_models(self._choice_versions).items():
            self._choice_versions[name] = version
            calls.append(partial(self.bandits[name].take_chosen, event))
        return calls

    def _poll_models(self) -> list[Callable[[], None]]:
        """Return calls that load newly published models."""
        calls: list[Callable[[], None]] = []
        for name, (number, data) in self.session.published(self._model_numbers).items():
            bandit, self._model_numbers[name] = self.bandits[name], number
            try:
                model = PublishedModel.read(data)
            except (UnsupportedFormat, CorruptJournal) as error:  # keep the previous model
                bandit.note("board", error)
            else:
                calls.append(partial(bandit.load, model))
        return calls
