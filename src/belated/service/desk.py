"""One bandit at one decider process: choose, have it kept, then answer."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from asyncio import Future
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from belated.bandit import check_part, check_same
from belated.events import Activation, Decision, Event, Reward, Switched, Void
from belated.exceptions import CorruptJournal, InvalidInput, JournalError, NewerFormat
from belated.features import Features, as_actions
from belated.ids import check_id, key_of, partition_of
from belated.inputs import as_reward, outside
from belated.journals import (
    Journal,
    PostgresCoordinationStore,
    PostgresJournal,
    SpoolJournal,
    SpoolStatus,
)
from belated.journals.arrivals import system_clock
from belated.journals.identity import identify
from belated.ledger import Telling
from belated.policies import Policy
from belated.published import PublishedModel
from belated.rewards import Rewards
from belated.service.baselines import UNIFORM
from belated.service.bodies import (
    BanditState,
    DecisionStory,
    NamedReward,
    Offer,
    RewardBody,
    packed_rows,
)
from belated.service.decider import MODES, Asked, Decider, Mode, table_of
from belated.service.gathering import Gathering
from belated.service.group_commit import GroupCommit
from belated.service.lookups import LookUps
from belated.service.problems import ProblemError
from belated.service.spools import WAIT, Leftovers, SpoolFolder
from belated.service.tallies import SECONDS, Tally
from belated.service.tokens import TokenMode

log = logging.getLogger("belated.service")

#: Seconds between two looks at the board, and at the mode.
LOOK, LOOK_AT_MODE = 0.05, 0.25
#: How much of the event loop's time models may take: the further the learner is behind, the more
#: decisions each of them has to be told of, while all requests wait.
MOST_TAKING = 0.01
#: In microseconds.
DAY = 86_400_000_000


@dataclass(frozen=True)
class Definition:
    """What a bandit is: the same for its learner and all its deciders.

    Attributes:
        name: of the bandit.
        policy: how actions are chosen.
        rewards: what silence means.
        features: from contexts to rows, where rows are not given.
        retention: for how long a decision takes rewards, in microseconds.
        partitions: of its journal; None for as many as there are.
        tokens: what is done with tokens of rewards.
        token_lifetime: of a token, in microseconds; None for as long as rewards are learned.
        baseline: how to choose without a model: the name of an action, ``first`` or ``uniform``.
    """

    name: str
    policy: Policy
    rewards: Rewards
    features: Features | None = None
    retention: int | None = None
    partitions: int | None = None
    tokens: TokenMode = "off"
    token_lifetime: int | None = None
    baseline: int | str = UNIFORM


@dataclass
class Seen:
    """What has happened at a desk, for metrics: counters only ever grow."""

    decisions: int = 0
    rewards: int = 0
    told: int = 0  # activations and voids
    models: int = 0
    entropy: float = 0.0  # Σ -log p of the choices
    seconds: Tally = field(default_factory=lambda: Tally(SECONDS))  # of answers to decide
    failures: Counter[str] = field(default_factory=Counter)  # by what failed
    errors: list[str] = field(default_factory=list)  # the last ones


class Desk:
    """Takes the requests for one bandit.

    Args:
        definition: of the bandit.
        dsn: of the database.
        loop: the requests' event loop.
        spools: where events wait while the database is away; None to refuse them then.
        clock: gives microseconds since 1970.
        seed: of the choices.
    """

    def __init__(
        self,
        definition: Definition,
        dsn: str,
        loop: asyncio.AbstractEventLoop,
        *,
        spools: SpoolFolder | None = None,
        clock: Callable[[], int] = system_clock,
        seed: int | None = None,
    ) -> None:
        self.definition = definition
        self.seen = Seen()
        self._clock = clock
        self._least, self._most = definition.rewards.range(definition.policy.family.support)
        self._loop = loop
        name, wait = definition.name, 10.0 if spools is None else WAIT
        journal = PostgresJournal(dsn, bandit=name, partitions=definition.partitions, wait=wait)
        policy = definition.policy
        identify(journal, family=repr(policy.family), dim=policy.dim, features=definition.features)
        self._reader = PostgresJournal(dsn, bandit=name, wait=wait)
        self._board = PostgresCoordinationStore(dsn, bandit=name, wait=wait)
        self.decider = Decider(
            definition.policy,
            partitions=journal.partitions,
            clock=clock,
            seed=seed,
            baseline=definition.baseline,
            bandit=name,
        )
        self.decider.warm_up()
        self._spool: SpoolJournal | None = None
        self._leftovers: Leftovers | None = None
        if spools is not None:
            self._spool = spools.open(journal, self._delivered)
            self._leftovers = Leftovers(spools, dsn, name)
        kept: Journal = journal if self._spool is None else self._spool
        self.commits = GroupCommit(kept, loop)
        self._gathering = Gathering(self.decider, self.commits, loop)
        self._lookups = LookUps(self._reader, self.decider, self._spool)
        self._number = 0
        self._model_due = 0.0
        #: When the model was made, in microseconds since 1970; None before the first one.
        self.model_at: int | None = None
        self._stopped = threading.Event()
        self._switched: Switched | None = None
        self._switch(self._reader.mode())
        try:
            if (published := self._newer()) is not None:  # it starts with the last model there is
                self._take(published)
        except (NewerFormat, CorruptJournal) as error:  # one may come that can be read here
            self._note("board", error)
        self._looker = threading.Thread(target=self._look_on, name="belated board", daemon=True)
        self._looker.start()

    def decide_many(
        self, offers: Sequence[Offer]
    ) -> Future[list[Decision]] | Coroutine[Any, Any, list[Decision]]:
        """Choose, keep, then answer: one append for all.

        All is read before anything is awaited, so that what was sent can be let go of: in a crowd
        it would be out of the processor's cache by the time a commit has ended.
        """
        if self.decider.mode == "off":
            raise ProblemError(
                503, "Switched off", "this bandit decides nothing now", {"retry-after": "60"}
            )
        start = time.perf_counter()
        asked = [self._read(offer) for offer in offers]
        ids = [one.id for one in asked if one.id is not None]
        if ids:
            return self._decide_named(asked, ids, start)
        return self._gathering.decide(asked, partial(self._answered, start))

    async def _decide_named(
        self, asked: Sequence[Asked], ids: Sequence[str], start: float
    ) -> list[Decision]:
        if len(set(ids)) < len(ids):
            raise InvalidInput("an id stands twice in this request: ids name one decision each")
        # Under an id that is sent for the first time there is nothing yet; and if it is sent again
        # before this is answered, then nobody waits for this answer any more.
        named = [one.id for one in asked if one.id is not None and not one.fresh]
        known = await self._lookups.decisions(named) if named else {}
        self._check_same(asked, known)
        new = [one for one in asked if one.id not in known]
        fresh = iter(await self._gathering.decide(new, self._count) if new else [])
        chosen = [known[one.id] if one.id in known else next(fresh) for one in asked]
        if named:
            # Another decider may have been asked the same meanwhile: one of the two counts.
            counting = await self._lookups.decisions(named)
            self._check_same(asked, counting)
            chosen = [counting.get(event.id, event) for event in chosen]
        self.seen.seconds.add(time.perf_counter() - start)
        return chosen

    def _check_same(self, asked: Sequence[Asked], known: Mapping[str, Decision]) -> None:
        """Refuse what is not a retry: a decision for other rows is of no use to who asks."""
        for one in asked:
            if one.id is not None and one.id in known:
                check_same(known[one.id], table_of([one.rows], self.definition.policy.dim))

    def reward_many(self, rewards: Sequence[tuple[str, RewardBody]]) -> Future[Sequence[int]]:
        """Keep rewards: one append for all."""
        return self.commits.append([self._reward(id, body) for id, body in rewards], self._rewarded)

    def tell(self, event: Activation | Void) -> Future[Sequence[int]]:
        """Keep an activation or a void."""
        return self.commits.append([event], self._told)

    def _answered(self, start: float, made: Sequence[Decision]) -> None:
        self._count(made)
        self.seen.seconds.add(time.perf_counter() - start)

    def _count(self, made: Sequence[Decision]) -> None:
        for event in made:
            self.seen.entropy -= math.log(event.propensity)
        self.seen.decisions += len(made)

    def _rewarded(self, count: int) -> None:
        self.seen.rewards += count

    def _told(self, count: int) -> None:
        self.seen.told += count

    async def story(self, id: str) -> DecisionStory:
        """All that the journal knows of a decision, by the rules of the ledger."""
        check_id(id)
        return await self._lookups.ask(lambda reader: self._tell(id, reader))

    def state(self) -> BanditState:
        """How it stands."""
        model = self.decider.model
        return BanditState(
            bandit=self.definition.name,
            policy=repr(self.definition.policy),
            version=self.decider.version,
            n=model.n,
            pending=model.pending,
            age=self.age,
            mode=self.decider.mode,
        )

    def when(self, at: int | None) -> int:
        """When something happened: as the caller says, or now; in microseconds since 1970.

        A caller's clock may be wrong, and by a day at most is not worth a refusal.
        """
        now = self._clock()
        if at is None:
            return now
        if at > now + DAY:
            raise InvalidInput(f"at is {at}, which is more than a day ahead of now, {now}", at)
        return at

    async def switch(self, mode: Mode, reason: str) -> Switched:
        """Decide in another way, at all deciders, within a second."""
        event = Switched(self._clock(), mode, reason)
        await self._lookups.ask(lambda journal: journal.append([event]))
        return event

    @property
    def spool(self) -> SpoolStatus | None:
        """What waits on the local disk; None if there is no spool."""
        return None if self._spool is None else self._spool.status

    def is_stale(self, seconds: float) -> bool:
        """Whether the model is older than that, and a newer one could be had elsewhere."""
        if self.decider.mode in ("baseline", "off"):
            return False  # it needs none
        if self.age is None:
            return True
        if self.decider.mode == "freeze":
            return False
        # While the database is away no decider has a newer one: all go on with what they have.
        away = self._spool is not None and self._spool.status.away
        return self.age > seconds and not away

    def now(self) -> int:
        """By the clock of the desk, in microseconds since 1970."""
        return self._clock()

    @property
    def age(self) -> float | None:
        """Of the model, in seconds."""
        return None if self.model_at is None else (self._clock() - self.model_at) / 1e6

    def close(self) -> None:
        """Commit what waits, and let go of the database."""
        self._stopped.set()
        self.commits.close()
        if self._leftovers is not None:
            self._leftovers.close()
        self._looker.join()
        self._reader.close()
        self._board.close()

    # --- the parts -------------------------------------------------------------------------------

    def _read(self, offer: Offer) -> Asked:
        features, dim, id = self.definition.features, self.definition.policy.dim, offer.id
        if id is not None:
            check_id(id)
        if features is None:
            if offer.context is not None:
                raise InvalidInput("this bandit has no features: send rows instead of a context")
            rows = packed_rows(offer, dim)
        else:
            if (offer.rows, offer.dim) != (None, None) or offer.actions is None:
                raise InvalidInput("this bandit has features: send a context and actions, no rows")
            rows = features.rows(offer.context, offer.actions).tobytes()
        actions = None if offer.actions is None else as_actions(offer.actions)
        if actions is not None and 4 * dim * len(actions) != len(rows):
            count = len(rows) // (4 * dim)
            message = f"{len(actions)} actions for {count} rows: one for each was expected"
            raise InvalidInput(message, actions)
        return Asked(rows, actions, id, offer.fresh, offer.activated)

    def _reward(self, id: str, body: RewardBody) -> Event:
        check_id(id)
        value = as_reward(body.value)
        if not self._least <= value <= self._most:
            raise outside(value, self._least, self._most)
        check_part(body.part, body.revision)
        return Reward(id, self.when(body.at), value, body.part, body.revision)

    def _delivered(self, events: Sequence[Event], positions: Sequence[int]) -> None:
        """What waited in the spool has its place now; told by the thread of the spool."""
        found = [
            (event.id, position)
            for event, position in zip(events, positions, strict=True)
            if isinstance(event, Decision)
        ]
        with suppress(RuntimeError):  # the loop has ended, and its decider with it
            self._loop.call_soon_threadsafe(self.decider.written_all, found)

    def _tell(self, id: str, reader: PostgresJournal) -> DecisionStory:
        made = self.definition
        # First these: what they settle must not be settled without a record that came before.
        settles = made.rewards.window_us is not None or made.retention is not None
        partition = partition_of(key_of(id), reader.partitions)
        records = reader.settlements(partition) if settles else []
        records += reader.records_of([id])
        telling = Telling(
            id, made.rewards, least=self._least, most=self._most, retention=made.retention
        )
        for record in sorted(records, key=lambda one: one.position):
            telling.take(record)
        return DecisionStory.of(telling)

    def _newer(self) -> PublishedModel | None:
        """The model on the board, if there is a newer one."""
        found = self._board.published(self._number)
        if found is None:
            return None
        self._number, data = found
        return PublishedModel.read(data)

    def _take(self, published: PublishedModel) -> None:
        start = time.monotonic()
        try:
            self.decider.take(published)
        except Exception as error:  # of another policy, or damaged: go on with the one there is
            self._note("model", error)
            return
        self.model_at = published.at
        self.seen.models += 1
        now = time.monotonic()
        self._model_due = now + (now - start) / MOST_TAKING

    def _switch(self, event: Switched | None) -> None:
        if event is None or event == self._switched:
            return
        self._switched = event
        if event.mode not in MODES:
            self._note("mode", InvalidInput(f"a newer release knows the mode {event.mode!r}"))
            return
        self.decider.switch(event.mode)
        # Its reason stands in the journal: nothing that was sent stands in a log.
        log.info("switched", extra={"bandit": self.definition.name, "mode": event.mode})

    def _look_on(self) -> None:
        looked = 0.0
        while not self._stopped.wait(LOOK):
            try:
                if time.monotonic() > looked + LOOK_AT_MODE:
                    self._loop.call_soon_threadsafe(self._switch, self._reader.mode())
                    looked = time.monotonic()
                published = self._newer() if time.monotonic() >= self._model_due else None
            except JournalError as error:  # it is away: go on with the model there is
                self._note("board", error)
                self._stopped.wait(0.2)
                continue
            if published is not None:
                self._loop.call_soon_threadsafe(self._take, published)

    def _note(self, what: str, error: Exception) -> None:
        self.seen.failures[what] += 1
        if str(error) not in self.seen.errors[-1:]:  # once, while it stays the same
            log.warning("no new model", extra={"bandit": self.definition.name, "why": str(error)})
        self.seen.errors = [*self.seen.errors[-9:], str(error)]


def named(rewards: Sequence[NamedReward]) -> list[tuple[str, RewardBody]]:
    """Each with its id."""
    return [(one.id, one) for one in rewards]
