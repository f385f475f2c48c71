"""A decider and learners in processes of their own, and the proof that they have lost nothing."""

from __future__ import annotations

import json
import signal
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

from belated import Bernoulli, DelayedUCB, Explicit
from belated.core.events import Decision, Record
from belated.fold.fold import Fold
from belated.journals import Journal, open_store
from tests.faults.service_load import Load, value_of
from tests.integration.postgres_server import PostgresServer
from tests.integration.processes import Process, later
from tests.ports import free_port
from tests.simulator.checks import check_counts, check_oracle, check_same, expected_of

PARTITIONS = 2


def write_config(folder: Path, address: str, *server: str, bandit: Sequence[str] = ()) -> Path:
    """The file of a service whose learner is a process of its own; more lines for its tables."""
    lines = (
        "[store]",
        f'address = "{address}"',
        "[server]",
        "learn = false",
        *server,
        "[bandits.offers]",
        'policy = "DelayedUCB(dim=2, family=Bernoulli())"',
        'rewards = "Explicit()"',
        f"partitions = {PARTITIONS}",
        *bandit,
    )
    file = folder / "belated.toml"
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


class Cluster:
    """A decider and a learner, with their files.

    Args:
        server: of the database.
        folder: for the files.
        port: of the way to the database; None for the straight one.
        spool: whether the decider has one.
    """

    def __init__(
        self,
        server: PostgresServer,
        folder: Path,
        *,
        port: int | None = None,
        spool: bool = True,
    ) -> None:
        self.server = server
        self.port = free_port()
        self._folder = folder
        self._started: list[Process] = []
        self._file = write_config(
            folder,
            server.dsn.replace(str(server.port), str(port or server.port)),
            f"port = {self.port}",
            'lease_ttl = "3s"',
            *([f'spool_dir = "{folder}/spool"'] if spool else []),
        )
        self.decider = self.start("serve")
        self.learner = self.start("learn")

    def start(self, command: str, *options: str) -> Process:
        """Another process."""
        log = self._folder / f"log {len(self._started)}"
        process = Process(log, command, str(self._file), *options)
        self._started.append(process)
        return process

    def start_decider(self) -> None:
        """Again and again, as a supervisor does, until it serves."""
        self.decider = self.start("serve")
        later(self._serves)

    def _serves(self) -> bool:
        if not self.decider.runs():
            self.decider = self.start("serve")
        with suppress(json.JSONDecodeError):  # one that cannot start says why in plain words
            return self.decider.said("serving") is not None
        return False

    def start_learner(self) -> None:
        """Until it leads."""
        self.learner = self.start("learn")
        self.learner.heard("this learner leads")

    def stop_learner(self) -> None:
        """In good order: it saves what it knows."""
        self.learner.send(signal.SIGTERM)
        assert self.learner.ended() == 0

    def wait(self) -> None:
        """Until it decides with a model."""
        self.decider.heard("serving")
        self.learner.heard("this learner leads")
        later(lambda: self.decider.ask("GET", "/readyz")[0] == 200)

    def journal(self) -> Journal:
        """By the straight way."""
        return open_store(self.server.dsn).journal("offers")

    def records(self) -> list[list[Record]]:
        """All there are, of each partition."""
        with self.journal() as journal:
            return [journal.read(p, 0, 1_000_000) for p in range(PARTITIONS)]

    def state(self) -> dict[str, Any]:
        """What the decider says; nothing while it does not answer."""
        with suppress(OSError):
            return self.decider.state()
        return {}

    def lost(self, load: Load) -> set[tuple[str, str]]:
        """What was acknowledged, and is not in the journal."""
        return load.lost(record.event for record in chain.from_iterable(self.records()))

    def left_behind(self) -> bool:
        """Whether a process that was killed had left events in its spool."""
        message = "delivered the events in the spool of a stopped process"
        return any(process.said(message) is not None for process in self._started)

    def close(self) -> None:
        """End all that still runs."""
        for process in self._started:
            process.kill()


def assert_nothing_lost(town: Cluster, load: Load) -> str:
    """All that was acknowledged is in the journal and counts once; learner and decider know it.

    Ends the learner, so that it saves what it knows: that, and not what this process makes of the
    journal, is compared with the oracle.

    Returns:
        What was found, in a line.
    """
    later(lambda: not town.lost(load), "something was lost")
    later(lambda: _knows_all(town), "the model does not know all")
    state = town.state()
    town.stop_learner()
    with town.journal() as journal:
        learner_fold, records = check_saved(journal, _empty, state["version"])
    assert {
        "observations": learner_fold.model.n,
        "pending": learner_fold.model.pending,
    }.items() <= state.items()
    repeated_ids = _check_once(load, learner_fold, records)
    assert not repeated_ids or town.left_behind(), f"decided twice: {repeated_ids}"
    return (
        f"{len(load.acknowledged('decision'))} decisions and "
        f"{len(load.acknowledged('reward'))} rewards acknowledged, 0 lost; "
        f"{learner_fold.version} records, {learner_fold.counters}, as the oracle says"
    )


def check_saved(
    journal: Journal, make: Callable[[], Fold], version: int
) -> tuple[Fold, list[list[Record]]]:
    """What a learner has saved, and what came since, is what the records say: C, H, the oracle.

    Args:
        journal: with its snapshot.
        make: an empty fold.
        version: records that the snapshot must have at least.

    Returns:
        What it knows, and the records of each partition.
    """
    learner_fold, replayed = make(), make()
    learner_fold.load(journal)
    assert learner_fold.version >= version
    learner_fold.catch_up(journal)
    records = [journal.read(p, 0, learner_fold.positions[p]) for p in range(journal.partitions)]
    for record in chain.from_iterable(records):
        replayed.take(record)
    check_counts("the learner", learner_fold)
    check_same("H", "the learner", learner_fold, replayed)
    check_oracle(learner_fold, expected_of(learner_fold, records))  # sums to 1e-9
    return learner_fold, records


def _empty() -> Fold:
    return Fold(DelayedUCB(2, Bernoulli()), Explicit(), partitions=PARTITIONS)


def _knows_all(town: Cluster) -> bool:
    return sum(map(len, town.records())) == town.state().get("version")


def _check_once(load: Load, fold: Fold, records: list[list[Record]]) -> set[str]:
    """X: what was told of a decision is what is kept, and its reward is learned.

    Returns:
        The ids under which there are two decisions. A caller who tries again after a decider was
        killed while the first one waited in its spool may be given a second: it is marked as a
        conflict, and one of the two counts.
    """
    decisions: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for record in chain.from_iterable(records):
        if isinstance(record.event, Decision):
            decisions[record.event.id].append((record.partition, record.event.index))
    for id, answer in load.acknowledged("decision").items():
        assert answer.chosen in [index for _, index in decisions[id]], f"{id!r} is another decision"
    for id in load.acknowledged("reward").keys() & decisions.keys():
        entry = fold.ledgers[decisions[id][0][0]].entry(id)
        assert entry is not None
        assert (entry.state, entry.value) == ("rewarded", value_of(id))
    return {id for id, decisions_of_id in decisions.items() if len(decisions_of_id) > 1}
