"""All bandits of one decider process: they share its connections, its threads and its commits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from belated.core.tuning import USUAL, Tuning
from belated.journals import Store
from belated.journals.log import finds_by_id
from belated.journals.sessions import BatchLog, StoreSession
from belated.journals.spool.together import SpooledLog
from belated.model.kernels import Kernels
from belated.service.runtime import Runtime
from belated.service.serving.definition import Definition
from belated.service.serving.group_commit import GroupCommit
from belated.service.serving.model_poll import ModelPoll
from belated.service.serving.served_bandit import ServedBandit
from belated.service.serving.shared import Shared
from belated.service.serving.spool_recovery import WAIT
from belated.service.serving.spools import Recovery, Spools

#: Seconds to wait for a store without a spool before it.
PATIENT_WAIT = 10.0
#: Seconds that rewards wait for each other if each partition they fall on costs a record of Kafka.
REWARD_SECONDS = 0.25


class ServedBandits(Mapping[str, ServedBandit]):
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
        wait = PATIENT_WAIT if spools is None else WAIT
        writing = store.session(wait=wait)
        reading, self._polling = store.session(wait=wait), store.session(wait=wait)
        line = None if spools is None else spools.line()
        self._log: BatchLog = writing if line is None else SpooledLog(writing, line)
        #: Of all bandits.
        self.commits = self._reward_commits = GroupCommit(self._log, loop, runtime)
        self._rewarding = writing
        if line is None and not finds_by_id(store):
            self._rewarding = store.session(wait=wait)
            self._reward_commits = GroupCommit(self._rewarding, loop, runtime, wait=REWARD_SECONDS)
        threads = ThreadPoolExecutor(1, thread_name_prefix="belated look-ups")
        self._shared = Shared(
            loop,
            runtime,
            self.commits,
            self._reward_commits,
            writing,
            self._rewarding,
            reading,
            threads,
            spools,
            line,
        )
        self._threads = threads
        self._bandits: dict[str, ServedBandit] = {}
        self.poll = ModelPoll(self._polling, self._bandits, loop, runtime)
        self._recovery: Recovery | None = None
        try:
            for one in definitions:
                self._bandits[one.name] = ServedBandit(
                    one, self._shared, seed=seed, kernels=kernels, tuning=tuning
                )
            self.poll.start()
            if spools is not None:
                self._recovery = spools.recover(self._polling, list(self._bandits), runtime)
                for bandit in self._bandits.values():
                    bandit.recovery = self._recovery
        except Exception:
            self.close()
            raise

    def __getitem__(self, name: str) -> ServedBandit:
        return self._bandits[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._bandits)

    def __len__(self) -> int:
        return len(self._bandits)

    @property
    def polling(self) -> StoreSession:
        """The connection for what is looked at now and then."""
        return self._polling

    def close(self) -> None:
        """Commit what waits, and let go of the store."""
        self.commits.close()
        if self._reward_commits is not self.commits:
            self._reward_commits.close()
            self._rewarding.close()
        if self._recovery is not None:
            self._recovery.stop(2 * WAIT)
        self.poll.stop()
        for bandit in self._bandits.values():
            bandit.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._log.close()
        self._shared.reading.close()
        self._polling.close()
