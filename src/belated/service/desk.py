"""One bandit at one decider process: choose, have it kept, then answer."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from belated.bandit import check_part, check_same
from belated.events import Activation, Decision, Event, Reward, Void
from belated.exceptions import BelatedError, InvalidInput, JournalError, JournalMismatch
from belated.features import Features, as_actions
from belated.identity import identify
from belated.ids import check_id, key_of, partition_of
from belated.inputs import as_reward, outside
from belated.journals import PostgresBoard, PostgresJournal
from belated.journals.arrivals import system_clock
from belated.ledger import Telling
from belated.policies import Policy
from belated.published import PublishedModel
from belated.rewards import Rewards
from belated.service.bodies import (
    BanditState,
    DecisionStory,
    NamedReward,
    Offer,
    RewardBody,
    packed_rows,
)
from belated.service.decider import Asked, Decider, table_of
from belated.service.gathering import Gathering
from belated.service.group_commit import GroupCommit
from belated.service.tallies import SECONDS, Tally

log = logging.getLogger("belated.service")

#: Seconds between two looks at the board.
LOOK = 0.05


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
    """

    name: str
    policy: Policy
    rewards: Rewards
    features: Features | None = None
    retention: int | None = None
    partitions: int | None = None


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
        clock: gives microseconds since 1970.
        seed: of the choices.
    """

    def __init__(
        self,
        definition: Definition,
        dsn: str,
        loop: asyncio.AbstractEventLoop,
        *,
        clock: Callable[[], int] = system_clock,
        seed: int | None = None,
    ) -> None:
        self.definition = definition
        self.seen = Seen()
        self._clock = clock
        self._least, self._most = definition.rewards.range(definition.policy.family.support)
        name = definition.name
        journal = PostgresJournal(dsn, bandit=name, partitions=definition.partitions)
        identify(journal, definition.policy, definition.features)
        self._reader = PostgresJournal(dsn, bandit=name)  # so that no look-up waits for a commit
        self._board = PostgresBoard(dsn, bandit=name)
        self.decider = Decider(
            definition.policy, partitions=journal.partitions, clock=clock, seed=seed
        )
        self.decider.warm_up()
        self.commits = GroupCommit(journal, loop)
        self._gathering = Gathering(self.decider, self.commits, loop)
        self._loop = loop
        self._number = 0
        #: When the model was made, in microseconds since 1970; None before the first one.
        self.model_at: int | None = None
        self._stopped = threading.Event()
        if (published := self._newer()) is not None:  # it starts with the last model there is
            self._take(published)
        self._looker = threading.Thread(target=self._look_on, name="belated board", daemon=True)
        self._looker.start()

    def decide_many(self, offers: Sequence[Offer]) -> Awaitable[list[Decision]]:
        """Choose, keep, then answer: one append for all.

        All is read before anything is awaited, so that what was sent can be let go of: in a crowd
        it would be out of the processor's cache by the time a commit has ended.
        """
        start = time.perf_counter()
        return self._decide([self._read(offer) for offer in offers], start)

    async def _decide(self, asked: Sequence[Asked], start: float) -> list[Decision]:
        ids = [one.id for one in asked if one.id is not None]
        if ids:
            chosen = await self._decide_named(asked, ids)
        else:
            chosen = await self._gathering.decide(asked)
            self._count(chosen)
        self.seen.seconds.add(time.perf_counter() - start)
        return chosen

    async def _decide_named(self, asked: Sequence[Asked], ids: Sequence[str]) -> list[Decision]:
        if len(set(ids)) < len(ids):
            raise InvalidInput("an id stands twice in this request: ids name one decision each")
        # Under an id that is sent for the first time there is nothing yet; and if it is sent again
        # before this is answered, then nobody waits for this answer any more.
        named = [one.id for one in asked if one.id is not None and not one.fresh]
        known = await self._known(named) if named else {}
        for one in asked:
            if one.id in known:
                check_same(known[one.id], table_of([one.rows], self.definition.policy.dim))
        new = [one for one in asked if one.id not in known]
        made = await self._gathering.decide(new) if new else []
        self._count(made)
        fresh = iter(made)
        chosen = [known[one.id] if one.id in known else next(fresh) for one in asked]
        if named:
            # Another decider may have been asked the same meanwhile: one of the two counts.
            counting = await self._known(named)
            chosen = [counting.get(event.id, event) for event in chosen]
        return chosen

    def _count(self, made: Sequence[Decision]) -> None:
        for event in made:
            self.seen.entropy -= math.log(event.propensity)
        self.seen.decisions += len(made)

    async def reward(self, id: str, body: RewardBody) -> None:
        """Keep a reward."""
        await self.reward_many([(id, body)])

    async def reward_many(self, rewards: Sequence[tuple[str, RewardBody]]) -> None:
        """Keep rewards: one append for all."""
        await self.commits.append([self._reward(id, body) for id, body in rewards])
        self.seen.rewards += len(rewards)

    async def tell(self, event: Activation | Void) -> None:
        """Keep an activation or a void."""
        await self.commits.append([event])
        self.seen.told += 1

    async def story(self, id: str) -> DecisionStory:
        """All that the journal knows of a decision, by the rules of the ledger."""
        return await asyncio.to_thread(self._tell, check_id(id))

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
        )

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
        return Reward(
            id, self._clock() if body.at is None else body.at, value, body.part, body.revision
        )

    async def _known(self, ids: Sequence[str]) -> dict[str, Decision]:
        return await asyncio.to_thread(self._reader.decisions, ids)

    def _tell(self, id: str) -> DecisionStory:
        made, reader = self.definition, self._reader
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
        try:
            self.decider.take(published)
        except JournalMismatch as error:  # the learner has another policy still, or already
            self._note("model", error)
            return
        self.model_at = published.at
        self.seen.models += 1

    def _look_on(self) -> None:
        while not self._stopped.wait(LOOK):
            try:
                published = self._newer()
            except JournalError as error:  # it is away: go on with the model there is
                self._note("board", error)
                self._stopped.wait(0.2)
                continue
            if published is not None:
                self._loop.call_soon_threadsafe(self._take, published)

    def _note(self, what: str, error: BelatedError) -> None:
        self.seen.failures[what] += 1
        if str(error) not in self.seen.errors[-1:]:  # once, while it stays the same
            log.warning("no new model", extra={"bandit": self.definition.name, "why": str(error)})
        self.seen.errors = [*self.seen.errors[-9:], str(error)]


def named(rewards: Sequence[NamedReward]) -> list[tuple[str, RewardBody]]:
    """Each with its id."""
    return [(one.id, one) for one in rewards]
