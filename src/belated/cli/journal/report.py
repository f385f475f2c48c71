"""What ``belated journal verify`` has found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from belated.cli.text import pairs, several, wrapped


@dataclass
class Report:
    """What was found.

    Attributes:
        bandit: its name.
        records: how many were read.
        damage: records that were changed or are missing.
        differences: between all records, and the snapshots with the records behind them.
        not_compared: why they could not be compared.
        notes: what else is worth knowing.
        compared: how many snapshots were compared.
        counts: decisions by state.
        digest: of all decisions.
        head: of the journal, names all its records.
        heads: of each partition.
    """

    bandit: str
    records: int = 0
    damage: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    not_compared: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    compared: int = 0
    counts: dict[str, int] | None = None
    digest: str | None = None
    head: str = ""
    heads: list[str] = field(default_factory=list)

    @property
    def status(self) -> str:
        """The worst of it."""
        if self.damage:
            return "damaged"
        if self.differences:
            return "differs"
        return "not compared" if self.not_compared else "ok"

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        return {"status": self.status, **vars(self)}


def as_text(report: Report) -> str:
    """For people."""
    items = [("bandit", report.bandit), ("records", f"{report.records:,}")]
    if report.counts is not None:
        states = [f"{count:,} {state}" for state, count in report.counts.items() if count]
        total = f"{sum(report.counts.values()):,}"
        items.append(("decisions", f"{total}: {', '.join(states)}" if states else total))
        items.append(("digest", report.digest or ""))
    items.append(("head", report.head))
    if len(report.heads) > 1:
        items += [("", one) for one in report.heads]
    lines = [pairs(items), *(wrapped(f"note: {note}", "  ") for note in report.notes)]
    found = report.damage or report.differences or report.not_compared
    heads = {
        "damaged": "DAMAGED: records were changed or are missing; restore a backup",
        "differs": "DIFFERS: the snapshots are wrong; the records count",
        "not compared": "NOT COMPARED: every record is intact, but",
        "ok": "OK: every record is intact; there is no snapshot to compare",
    }
    head = heads[report.status]
    if report.status == "ok" and report.compared:
        head = f"OK: every record is intact, and {several(report.compared, 'snapshot')} agree"
    if report.status == "ok" and report.compared == 1:
        head += "s"
    lines += [head, *(wrapped(f"  {one}", "    ") for one in found)]
    return "\n".join(lines)
