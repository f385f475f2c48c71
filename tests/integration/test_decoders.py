"""Every decoder is made at import.

msgspec resolves the annotations of a type when it first meets it, and two threads that do so at the
same time can crash: as when a service starts with two bandits that learn.
"""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import numpy as np
import pytest

import belated
from belated import Bernoulli, DelayedUCB, Explicit
from belated.client import Client
from belated.core.events import Void
from belated.exceptions import JournalUnavailable
from belated.journals import MemoryStore, SpoolJournal, open_store
from belated.service import Definition, Service
from belated.service.serving.spools import SpoolFolder
from tests.integration.serving import served
from tests.waiting import eventually

OFFERS = Definition("offers", DelayedUCB(2, Bernoulli()), Explicit(), partitions=2)


@pytest.fixture
def no_more_decoders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if a decoder is created from here on, in the whole package."""
    for info in pkgutil.walk_packages(belated.__path__, "belated."):
        if not info.name.endswith("__main__"):
            importlib.import_module(info.name)

    def refuse(*arguments: Any, **options: Any) -> NoReturn:
        pytest.fail(f"a decoder is made after import, for {arguments} {options}")

    for module in (msgspec.json, msgspec.msgpack):
        decode = module.decode

        def untyped(data: bytes, _decode: Any = decode, **options: Any) -> Any:
            return refuse(**options) if options else _decode(data)

        monkeypatch.setattr(module, "Decoder", refuse)
        monkeypatch.setattr(module, "decode", untyped)
    monkeypatch.setattr(msgspec, "convert", refuse)


def test_a_service_makes_none(no_more_decoders: None, tmp_path: Path) -> None:
    """With requests, folds, published models, snapshots, and pending events in a spool."""
    store = open_store(f"sqlite:///{tmp_path}/belated.db")
    folder = SpoolFolder(tmp_path / "spool")
    folder.path.mkdir()
    leave_behind(folder.path / "offers.0.spool")
    for rewards in (1, 2):  # the second time with a snapshot and a model
        app = Service([OFFERS], store, learn=True, spools=folder)
        with served(app) as serving, Client(serving.url, bandit="offers") as client:
            decision = client.decide(rows=np.eye(2))
            client.observe_many([(decision.id, 1.0)])
            client.activate(decision.id, at=1_700_000_000_000_000)
            client.decide_many(rows=[np.eye(2)])
            assert client.entry(decision.id).state == "rewarded"
            eventually(lambda: client.state().observations == rewards)  # noqa: B023 - it is awaited here
    with store.journal("offers") as journal:
        assert journal.records_of(["left behind"])


def leave_behind(path: Path) -> None:
    """Leave a spool, as a process that died while its store was unavailable."""
    journal = MemoryStore().journal("offers", partitions=2)

    def unavailable(*arguments: Any, **options: Any) -> NoReturn:
        raise JournalUnavailable("it is unavailable")

    journal.append = unavailable  # type: ignore[method-assign]
    spool = SpoolJournal(journal, path, wait=None)
    spool.append([Void("left behind", 1)])
    spool.close()


#: Each thread is the first to read a snapshot, a model, an event and a spool.
RACE = """
import sys, threading
from belated import Bandit, Bernoulli, DelayedUCB, Explicit
from belated.model import kernels
from belated.journals import MemoryJournal
from belated.fold.fold import Fold
from belated.fold.published import PublishedModel

policy, count = DelayedUCB(2, Bernoulli()), 8
journals = [MemoryJournal() for _ in range(count)]
for journal in journals:
    bandit = Bandit(policy=policy, rewards=Explicit(), journal=journal, kernels=kernels.plain())
    bandit.decide(rows=[[1.0, 0.0], [0.0, 1.0]])
    bandit.save()
folds = [Fold(policy, Explicit(), partitions=1, kernels=kernels.plain()) for _ in journals]
model = folds[0].export_model(5).write()
sys.setswitchinterval(1e-6)
together = threading.Barrier(count)

def begin(fold, journal):
    together.wait()
    fold.load(journal)
    PublishedModel.read(model)

threads = [threading.Thread(target=begin, args=one) for one in zip(folds, journals)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert all(fold.positions == [2] for fold in folds)
"""


def test_threads_that_read_first_at_once_do_not_crash(full: bool) -> None:
    """Eight learners start in one process, with the minimum switch interval."""
    for _ in range(12 if full else 3):
        result = subprocess.run([sys.executable, "-c", RACE], capture_output=True, check=False)
        assert result.returncode == 0, result.stderr.decode()
