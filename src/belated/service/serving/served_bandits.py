"""All bandits of one decider process: they share its connections, its threads and its commits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from belated.core.tuning import USUAL, Tuning
from belated.exceptions import CorruptJournal, JournalError, JournalReplaced, UnsupportedFormat
from belated.fold.published import PublishedModel
from belated.journals import Store
from belated.journals.log import finds_by_id
from belated.journals.spool.together import SpooledLog
from belated.journals.store import BatchLog, StoreSession
from belated.model.kernels import Kernels
from belated.service.runtime import Runtime, Worker
from belated.service.serving.definition import Definition
from belated.service.serving.group_commit import GroupCommit
from belated.service.serving.served_bandit import ServedBandit, Shared
from belated.service.serving.spools import WAIT, Recovery, Spools

#: Seconds to wait for a store without a spool before it.
PATIENT_WAIT = 10.0
#: Seconds that rewards wait for each other if each partition they fall on costs a record of Kafka.
REWARD_SECONDS = 0.25
#: Seconds between two looks for models while some come, and at most; between two for modes; and
#: after a failure.
POLL_SECONDS, MAX_POLL_SECONDS, MODE_SECONDS, RETRY_SECONDS = 0.05, 0.25, 0.25, 0.2
#: The share of the event loop's time that loading models may take.
MAX_LOADING = 0.01


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
        writing = rewarding = store.session(wait=wait)
        #: The connection for what is looked at now and then.
        self.polling = store.session(wait=wait)
        line = None if spools is None else spools.line()
        self._log: BatchLog = writing if line is None else SpooledLog(writing, line)
        #: Of all bandits.
        self.commits = reward_commits = GroupCommit(self._log, loop, runtime)
        if line is None and not finds_by_id(store):
            rewarding = store.session(wait=wait)
            reward_commits = GroupCommit(rewarding, loop, runtime, wait=REWARD_SECONDS)
        self._shared = Shared(
            loop,
            runtime,
            self.commits,
            reward_commits,
            writing,
            rewarding,
            reading=store.session(wait=wait),
            threads=ThreadPoolExecutor(1, thread_name_prefix="belated look-ups"),
            spools=spools,
            line=line,
        )
        self.poll = ModelPoll(self.polling, self, loop, runtime)
        self._recovery: Recovery | None = None
        try:
            for definition in definitions:
                self[definition.name] = ServedBandit(
                    definition, self._shared, seed=seed, kernels=kernels, tuning=tuning
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
        """Commit what waits, and let go of the store."""
        shared = self._shared
        self.commits.close()
        if shared.reward_commits is not self.commits:
            shared.reward_commits.close()
            shared.rewarding.close()
        if self._recovery is not None:
            self._recovery.stop(2 * WAIT)
        self.poll.stop()
        for bandit in self.values():
            bandit.close()
        shared.threads.shutdown(wait=False, cancel_futures=True)
        self._log.close()
        shared.reading.close()
        self.polling.close()


@dataclass(eq=False)
class ModelPoll:
    """Looks for the models and modes of all bandits; the less often, the less comes.

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
        self._model_due = self._mode_due = 0.0
        self._pause = POLL_SECONDS
        self._worker: Worker | None = None
        #: Whether the journal was removed or replaced under this process.
        self.replaced = False

    def start(self) -> None:
        """Take what there is now; from then on look beside the event loop.

        Raises:
            JournalError: it cannot be had.
        """
        self._numbers = dict.fromkeys(self.bandits, 0)
        for call in (*self._look_for_modes(), *self._look_for_models()):
            call()
        self._mode_due = self._monotonic() + MODE_SECONDS
        self._worker = self.runtime.start_worker("belated models", self._step)

    def stop(self) -> None:
        """Look no more."""
        if self._worker is not None:
            self._worker.stop()

    def look_now(self) -> None:
        """Do not wait until the next look is due."""
        self._model_due = self._mode_due = 0.0
        if self._worker is not None:
            self._worker.wake()

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
            return RETRY_SECONDS
        if calls:
            self.loop.call_soon_threadsafe(self._tell, calls)
        return self._pause

    def _tell(self, calls: list[Callable[[], None]]) -> None:
        start = self._monotonic()
        for call in calls:
            call()
        now = self._monotonic()
        self._model_due = now + (now - start) / MAX_LOADING

    def _look_for_modes(self) -> list[Callable[[], None]]:
        modes = self.session.modes(list(self.bandits))
        return [partial(self.bandits[name].take_mode, event) for name, event in modes.items()]

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
