"""``belated journal inspect``: show what a journal holds.

It needs to know nothing of the policy, and changes nothing.
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

#: Characters of a setting that are shown; ``--json`` has all of it.
MAX_VALUE = 68


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_address(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    store, bandits = find_bandits(options.address)
    found = []
    for bandit in bandits:
        with store.journal(bandit.name) as journal:
            found.append(describe(journal, bandit))
    if options.json:
        print(msgspec.json.encode({"store": store.place, "bandits": found}).decode())
    else:
        print(f"{store.place} holds {several(len(found), 'bandit')}")
        for one in found:
            print(f"\n{_text(one)}")
    return int(any(part["damage"] for one in found for part in one["parts"]))


def describe(journal: Journal, bandit: StoredBandit) -> dict[str, Any]:
    """What the journal of one bandit holds."""
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
    said = configured(journal)
    return {
        "bandit": bandit.name,
        "identity": bandit.identity,
        "configured": None if said is None else said.settings,
        "configured_at": None if said is None else said.at_us,
        "partitions": bandit.partitions,
        "records": sum(part["records"] for part in parts),
        "trimmed": sum(one.position for one in starts),
        "trimmed_to": max(one.stamp for one in starts) or None,
        "first": min((part["first"] for part in parts if part["first"] is not None), default=None),
        "last": max((part["last"] for part in parts if part["last"] is not None), default=None),
        "events": dict(sorted(kinds.items())),
        "parts": parts,
        "snapshots": [
            {
                "partition": one.partition,
                "position": one.position,
                "behind": ends[one.partition] - one.position,
                "age": _age(journal, one.partition, one.position, now),
                "bytes": one.bytes,
            }
            for one in bandit.snapshots
        ],
    }


def _age(journal: Journal, partition: int, position: int, now: int) -> int | None:
    """How long ago the last record of a snapshot was written, in microseconds."""
    if position == 0:
        return None
    try:
        records = journal.read(partition, position - 1, 1)
    except (CorruptEvent, CorruptJournal):
        return None
    return max(0, now - records[0].recorded) if records else None


def _text(one: dict[str, Any]) -> str:
    identity = one["identity"]
    items = [("bandit", one["bandit"])]
    if identity is None:
        items.append(("family", "unknown: no bandit has used this journal yet"))
    else:
        items += [
            ("family", identity.get("family", "unknown")),
            ("rows of", f"{identity.get('dim', 'unknown')} numbers"),
            ("features", identity.get("features") or "none: rows are given"),
        ]
    if one["configured"] is not None:
        items += [
            (name, value if len(value) <= MAX_VALUE else f"{value[: MAX_VALUE - 1]}…")
            for name, value in one["configured"].items()
            if name not in ("features", "reduce")
        ]
    items.append(("records", f"{one['records']:,} in {several(one['partitions'], 'partition')}"))
    if one["trimmed"]:
        items.append(("trimmed", f"{one['trimmed']:,}, up to {moment(one['trimmed_to'])}"))
    if one["records"]:
        items += [("first", moment(one["first"])), ("last", moment(one["last"]))]
    blocks = [pairs(items)]
    if one["events"]:
        blocks.append(table(["events", ">count"], list(one["events"].items()), indent="  "))
    if one["partitions"] > 1 and one["records"]:
        parts = [
            [part["partition"], part["records"], moment(part["first"]), moment(part["last"])]
            for part in one["parts"]
            if part["records"]
        ]
        blocks.append(table([">partition", ">records", "first", "last"], parts, indent="  "))
    if one["snapshots"]:
        rows = []
        for snapshot in one["snapshots"]:
            age = "-" if snapshot["age"] is None else lasting(snapshot["age"] / 1e6)
            counts = [snapshot[name] for name in ("partition", "position", "behind")]
            rows.append([*counts, age, size(snapshot["bytes"])])
        head = [">snapshot of partition", ">position", ">records since", ">age", ">size"]
        blocks.append(table(head, rows, indent="  "))
    blocks += [
        wrapped(f"  DAMAGED: {part['damage']}", indent="    ")
        for part in one["parts"]
        if part["damage"]
    ]
    return "\n\n".join(blocks)
