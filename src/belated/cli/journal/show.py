"""``belated journal show``: show the full history of one decision.

The command lists all records in order, with the effect of each record, and the resulting state,
which it computes from the records according to the rules of the ledger. By default, it uses the
reward settings in the journal. If there are none, it uses ``Explicit()``, so that no window ends.
"""

from __future__ import annotations

import argparse
from contextlib import suppress
from typing import Any

import msgspec

from belated.cli.address import add_address, configured, opened
from belated.cli.journal.lines import line_of
from belated.cli.options import add_json, add_semantics, semantics
from belated.cli.text import moment, pairs, several, table, wrapped
from belated.core.ids import check_id, key_of, partition_of
from belated.core.rewards import Rewards
from belated.exceptions import InvalidInput
from belated.expressions import family_in
from belated.fold.decision_history import read_history
from belated.fold.requests import KeptRequest
from belated.journals import Journal

EXAMPLE = "belated journal show order-17 sqlite:///offers.db --window 7d"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("id", metavar="ID", help="decision id")
    add_address(parser)
    add_json(parser)
    add_semantics(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    check_id(options.id)
    with opened(options.address) as (journal, bandit):
        rewards, retention = semantics(options, configured(journal))
        story = tell(journal, options.id, rewards, retention, bandit.identity)
    print(msgspec.json.encode(story).decode() if options.json else _text(story))
    return 0 if story["records"] else 1


def tell(
    journal: Journal,
    id: str,
    rewards: Rewards,
    retention: int | None,
    identity: dict[str, str] | None,
) -> dict[str, Any]:
    """Return the history of one decision."""
    min_reward, max_reward = rewards.min_reward, rewards.max_reward
    if identity is not None:
        # The support of custom families is unknown here.
        with suppress(InvalidInput):
            min_reward, max_reward = rewards.range(family_in(identity.get("family", "")).support)
    bounds = {"min_reward": min_reward, "max_reward": max_reward}
    telling = read_history(journal, id, rewards, retention=retention, **bounds)
    entry = telling.entry
    return {
        "id": id,
        "bandit": journal.bandit,
        "partition": partition_of(key_of(id), journal.partitions),
        "state": telling.state,
        "forgotten": telling.forgotten,
        "incomplete": telling.incomplete,
        "value": telling.value,
        "late": entry is not None and entry.late,
        "conflict": entry is not None and entry.conflict,
        "due": None if entry is None else entry.due_us,
        "watermark": telling.watermark,
        "records": [
            msgspec.to_builtins(line_of(record)) | {"status": status}
            for record, status in telling.records
        ],
        "request": None
        if telling.request is None
        else KeptRequest.read(telling.request, telling.decision).to_dict(),
    }


def _text(story: dict[str, Any]) -> str:
    if not story["records"]:
        text = f"no record of {story['id']} in the journal of {story['bandit']}"
    else:
        items = [
            ("decision", story["id"]),
            ("bandit", f"{story['bandit']}, partition {story['partition']}"),
            ("state", _state(story)),
        ]
        if story["due"] is not None:
            items.append(("due", moment(story["due"])))
        if story["watermark"]:
            items.append(("settled to", moment(story["watermark"])))
        blocks = [pairs(items), *(_record(record) for record in story["records"])]
        if story["request"] is not None:
            blocks.append(_request(story["request"]))
        text = "\n".join(blocks)
    return text


def _state(story: dict[str, Any]) -> str:
    text: str = story["state"]
    if text == "unmatched":
        text = "unmatched: there is no decision with this id yet"
    if story["value"] is not None:
        text += f" with {story['value']!r}"
    notes = [note for note in ("late", "conflict", "forgotten", "incomplete") if story[note]]
    return f"{text} ({', '.join(notes)})" if notes else text


def _record(record: dict[str, Any]) -> str:
    head = f"\n{moment(record['recorded'])}  {record['kind']}, position {record['position']}"
    details = [("effect", record["status"]), ("at", moment(record["at"]))]
    if record["kind"] == "decision":
        details += [
            ("action", f"{record['action']!r}, row {record['index']} of the offered actions"),
            ("row", _row(record["x"])),
            ("mean", repr(record["mean"])),
            ("propensity", repr(record["propensity"])),
            ("model", f"version {record['model']}"),
        ]
        if not record.get("activated", True):
            details.append(("activated", "not when the decision was made"))
    if record["kind"] == "reward":
        details.append(("value", repr(record["value"])))
        if "part" in record:
            details.append(("part", repr(record["part"])))
        if "revision" in record:
            details.append(("revision", str(record["revision"])))
    if record["kind"] == "subject_reward":
        details += [("value", repr(record["value"])), ("event id", record["event_id"])]
    return f"{head}\n{pairs(details, indent='  ')}"


def _request(request: dict[str, Any]) -> str:
    """Format the stored request for a decision."""
    rows, shares, records = request["rows"], request["propensities"], request["records"]
    names = request["actions"] or range(len(rows or ()))
    head = f"\nchosen from {several(len(names), 'action')}"
    head += f"; stored with probability {request['share']:.4g}"
    columns, lines = ["action"], [[repr(name)] for name in names]
    if shares is not None:
        columns.append(">propensity")
        lines = [[*line, f"{share:.4g}"] for line, share in zip(lines, shares, strict=True)]
    if rows is not None:
        columns.append("row")
        lines = [[*line, _row(row)] for line, row in zip(lines, rows, strict=True)]
    else:
        head += "\n" + wrapped(f"  context  {request['context']}", indent="    ")
    if records is not None:
        columns.append("record")
        lines = [[*line, str(record)] for line, record in zip(lines, records, strict=True)]
    return f"{head}\n{table(columns, lines, indent='  ')}"


def _row(x: list[float], shown: int = 5) -> str:
    numbers = ", ".join(f"{value:.6g}" for value in x[:shown])
    return f"{numbers}, … ({len(x)} numbers)" if len(x) > shown else numbers
