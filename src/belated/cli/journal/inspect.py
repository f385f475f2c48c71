"""``belated journal inspect``: show the contents of a journal.

The command does not require a policy and does not change the journal.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from typing import Any

import msgspec

from belated.cli.address import (
    add_address,
    configured,
    ends_of,
    find_bandits,
    starts_of,
)
from belated.cli.options import add_json
from belated.cli.text import Progress, moment, pairs, several, size, table, wrapped
from belated.core.events import kind_of
from belated.core.times import lasting
from belated.exceptions import CorruptEvent, CorruptJournal
from belated.journals import Journal
from belated.journals.pages import pages
from belated.journals.store import StoredBandit

EXAMPLE = "belated journal inspect sqlite:///offers.db"

#: Maximum length of a setting in text output. With ``--json``, settings are not truncated.
MAX_VALUE = 68


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_address(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    store, bandits = find_bandits(options.address)
    descriptions = []
    for bandit in bandits:
        with store.journal(bandit.name) as journal:
            descriptions.append(describe(journal, bandit))
    if options.json:
        print(msgspec.json.encode({"store": store.place, "bandits": descriptions}).decode())
    else:
        print(f"{store.place} contains {several(len(descriptions), 'bandit')}")
        for description in descriptions:
            print(f"\n{_text(description)}")
    return int(any(part["damage"] for bandit in descriptions for part in bandit["parts"]))


def describe(journal: Journal, bandit: StoredBandit) -> dict[str, Any]:
    """Return a description of a bandit's journal."""
    now = time.time_ns() // 1000
    ends = ends_of(journal)
    kinds: Counter[str] = Counter()
    parts = []
    with Progress(f"{bandit.name}: read", sum(ends)) as progress:
        for partition, end in enumerate(ends):
            part: dict[str, Any] = {"partition": partition, "records": 0}
            part |= {"first": None, "last": None, "damage": None}
            parts.append(part)
            try:
                for page in pages(journal, partition, end=end):
                    kinds.update(kind_of(record.event) for record in page)
                    part["first"] = part["first"] or page[0].recorded
                    part["last"] = page[-1].recorded
                    part["records"] += len(page)
                    progress.step(len(page))
            except (CorruptEvent, CorruptJournal) as error:
                part["damage"] = str(error)
    starts = starts_of(journal)
    event = configured(journal)
    return {
        "bandit": bandit.name,
        "identity": bandit.identity,
        "configured": None if event is None else event.settings,
        "configured_at": None if event is None else event.at_us,
        "partitions": bandit.partitions,
        "records": sum(part["records"] for part in parts),
        "trimmed": sum(start.position for start in starts),
        "trimmed_to": max(start.stamp for start in starts) or None,
        "first": min((part["first"] for part in parts if part["first"] is not None), default=None),
        "last": max((part["last"] for part in parts if part["last"] is not None), default=None),
        "events": dict(sorted(kinds.items())),
        "parts": parts,
        "snapshots": [
            {
                "partition": snapshot.partition,
                "position": snapshot.position,
                "behind": ends[snapshot.partition] - snapshot.position,
                "age": _age(journal, snapshot.partition, snapshot.position, now),
                "bytes": snapshot.bytes,
            }
            for snapshot in bandit.snapshots
        ],
    }


def _age(journal: Journal, partition: int, position: int, now: int) -> int | None:
    """Return the age of the last record that a snapshot includes, in microseconds."""
    if position == 0:
        return None
    try:
        records = journal.read(partition, position - 1, 1)
    except (CorruptEvent, CorruptJournal):
        return None
    return max(0, now - records[0].recorded) if records else None


def _text(bandit: dict[str, Any]) -> str:
    identity = bandit["identity"]
    items = [("bandit", bandit["bandit"])]
    if identity is None:
        items.append(("family", "unknown: no bandit has used this journal yet"))
    else:
        items += [
            ("family", identity.get("family", "unknown")),
            ("rows of", f"{identity.get('dim', 'unknown')} numbers"),
            ("features", identity.get("features") or "none: callers pass rows"),
        ]
    if bandit["configured"] is not None:
        items += [
            (name, value if len(value) <= MAX_VALUE else f"{value[: MAX_VALUE - 1]}…")
            for name, value in bandit["configured"].items()
            if name not in ("features", "reduce")
        ]
    items.append(
        ("records", f"{bandit['records']:,} in {several(bandit['partitions'], 'partition')}")
    )
    if bandit["trimmed"]:
        items.append(("trimmed", f"{bandit['trimmed']:,}, up to {moment(bandit['trimmed_to'])}"))
    if bandit["records"]:
        items += [("first", moment(bandit["first"])), ("last", moment(bandit["last"]))]
    blocks = [pairs(items)]
    if bandit["events"]:
        blocks.append(table(["events", ">count"], list(bandit["events"].items()), indent="  "))
    if bandit["partitions"] > 1 and bandit["records"]:
        parts = [
            [part["partition"], part["records"], moment(part["first"]), moment(part["last"])]
            for part in bandit["parts"]
            if part["records"]
        ]
        blocks.append(table([">partition", ">records", "first", "last"], parts, indent="  "))
    if bandit["snapshots"]:
        rows = []
        for snapshot in bandit["snapshots"]:
            age = "-" if snapshot["age"] is None else lasting(snapshot["age"] / 1e6)
            counts = [snapshot[name] for name in ("partition", "position", "behind")]
            rows.append([*counts, age, size(snapshot["bytes"])])
        head = [">snapshot of partition", ">position", ">records since", ">age", ">size"]
        blocks.append(table(head, rows, indent="  "))
    blocks += [
        wrapped(f"  DAMAGED: {part['damage']}", indent="    ")
        for part in bandit["parts"]
        if part["damage"]
    ]
    return "\n\n".join(blocks)
