"""One look at new models and modes, for all bandits of a decider."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from belated.core.events import ModeChanged
from belated.exceptions import CorruptJournal, JournalError, JournalReplaced, UnsupportedFormat
from belated.fold.published import PublishedModel
from belated.journals.sessions import StoreSession
from belated.service.runtime import Runtime, Worker

#: Seconds between two looks for models while some come, and at most; between two for modes; and
#: after a failure.
POLL_SECONDS, MAX_POLL_SECONDS, MODE_SECONDS, RETRY_SECONDS = 0.05, 0.25, 0.25, 0.2
#: The share of the event loop's time that loading models may take.
MAX_LOADING = 0.01


class Polled(Protocol):
    """A bandit that is told what is new; on the event loop."""

    def load(self, published: PublishedModel) -> None:
        """Choose with this model from now on."""

    def take_mode(self, event: ModeChanged) -> None:
        """Decide in this way from now on."""

    def note(self, what: str, error: Exception) -> None:
        """Something went wrong; from any thread."""


class ModelPoll:
    """Looks for the models and modes of all bandits; the less often, the less comes.

    Args:
        session: for this alone.
        bandits: by name.
        loop: of the bandits.
        runtime: time and threads.
    """

    def __init__(
        self,
        session: StoreSession,
        bandits: Mapping[str, Polled],
        loop: asyncio.AbstractEventLoop,
        runtime: Runtime,
    ) -> None:
        self._session = session
        self._bandits = bandits
        self._loop = loop
        self._runtime = runtime
        self._monotonic = runtime.monotonic
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
        self._numbers = dict.fromkeys(self._bandits, 0)
        for call in (*self._look_for_modes(), *self._look_for_models()):
            call()
        self._mode_due = self._monotonic() + MODE_SECONDS
        self._worker = self._runtime.start_worker("belated models", self._step)

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
            for one in self._bandits.values():
                one.note("board", error)
            return RETRY_SECONDS
        if calls:
            self._loop.call_soon_threadsafe(self._tell, calls)
        return self._pause

    def _tell(self, calls: list[Callable[[], None]]) -> None:
        start = self._monotonic()
        for call in calls:
            call()
        now = self._monotonic()
        self._model_due = now + (now - start) / MAX_LOADING

    def _look_for_modes(self) -> list[Callable[[], None]]:
        found = self._session.modes(list(self._bandits))
        return [
            lambda name=name, event=event: self._bandits[name].take_mode(event)  # type: ignore[misc]
            for name, event in found.items()
        ]

    def _look_for_models(self) -> list[Callable[[], None]]:
        calls: list[Callable[[], None]] = []
        for name, (number, data) in self._session.published(self._numbers).items():
            bandit, self._numbers[name] = self._bandits[name], number
            try:
                model = PublishedModel.read(data)
            except (UnsupportedFormat, CorruptJournal) as error:  # one may come that can be read
                bandit.note("board", error)
            else:
                calls.append(lambda bandit=bandit, model=model: bandit.load(model))  # type: ignore[misc]
        return calls
