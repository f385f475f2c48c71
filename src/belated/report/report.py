"""A one-page report of what a bandit earns."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import msgspec

from belated.advice import Evidence
from belated.core.results import Result
from belated.evaluation.log import DecisionLog
from belated.exceptions import BelatedError, InvalidInput, extra
from belated.expressions import as_whole_policy
from belated.fold.evidence import evidence_of
from belated.model.estimators import Estimate
from belated.report.facts import DAY, Facts, short
from belated.report.page import document
from belated.report.panels import PANELS, attention, headline, health, quality, specifications
from belated.report.panels.feed import LAG
from belated.report.vega import LIGHT

SCHEMA = "belated-report/1"
#: Width and scale of a PNG chart, and height of a report in a notebook, in pixels.
WIDTH, SCALE, FRAME = 620, 2, 900


@dataclass(frozen=True, eq=False, repr=False)
class Report(Result):
    """Report on what a bandit earns, which rewards are still to come, and what needs attention.

    Attributes:
        data: all numbers, in the format ``belated-report/1``.
    """

    data: dict[str, Any]

    @classmethod
    def of(
        cls,
        log: DecisionLog,
        estimate: Estimate | None = None,
        evidence: Evidence | None = None,
    ) -> Report:
        """Create the report of a log.

        Args:
            log: the decision log of a journal or of another system.
            estimate: the bandit's model; without it, coefficients are not shown.
            evidence: evidence for the checks; without it, some checks are skipped.

        Raises:
            InvalidInput: there are no decisions.
        """
        facts = Facts.read(log, estimate, evidence)
        if not len(facts.table):
            message = f"the journal of {log.name!r} has no decisions"
            raise InvalidInput(f"{message}: record some decisions first", 0)
        data: dict[str, Any] = {"schema": SCHEMA, **_identity(facts)}
        data["headline"] = headline.collect(facts)
        data |= {panel.name: panel.collect(facts) for panel in PANELS if panel is not LAG}
        data["quality"] = quality.collect(facts)
        data["modes"] = facts.watched.modes[-50:]
        data["health"] = health.collect(facts)
        data["headline"] |= headline.complete(facts, data)
        data["attention"] = attention.collect(facts, data)
        return cls(data)

    def with_units(self, unit: str = "reward", currency: str = "") -> Report:
        """Return the same report with names for its rewards.

        Args:
            unit: name of one reward, in the singular, such as ``"purchase"``.
            currency: the currency of the values, as an ISO 4217 code such as ``"EUR"``; empty if
                rewards are not money. Rewards between 0 and 1 are shown as percentages, and cannot
                have a currency.

        Raises:
            InvalidInput: the unit is empty, or a currency is given for rewards between 0 and 1.
        """
        if not unit.strip():
            raise InvalidInput("`unit` is empty: name one reward, such as 'purchase'", unit)
        if currency and self.data["rewards"]["shares"]:
            message = f"`currency` is {currency!r}, but rewards are between 0 and 1: set `unit`"
            raise InvalidInput(f"{message} instead", currency)
        return Report(self.data | {"unit": unit.strip(), "currency": currency.strip()})

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers."""
        return self.data

    def html(self) -> str:
        """Return the report as a self-contained HTML document."""
        return document(self.data)

    def save(self, path: str | Path) -> None:
        """Write the page to a ``.html`` file, or the data to a ``.json`` file.

        Raises:
            InvalidInput: the file has any other extension.
        """
        file = Path(path)
        if file.suffix == ".html":
            file.write_text(self.html(), encoding="utf-8")
        elif file.suffix == ".json":
            file.write_bytes(msgspec.json.encode(self.data))
        else:
            message = f"{str(file)!r} is neither .html nor .json"
            raise InvalidInput(f"{message}: use one of these extensions", path)

    def save_charts(self, folder: str | Path) -> list[Path]:
        """Write each chart to a PNG file named after its panel; return the paths of the files.

        Raises:
            MissingExtra: the ``report`` extra is not installed.
        """
        with extra("a chart as PNG", "report"):
            import vl_convert
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        files = []
        for name, spec in specifications(self.data, LIGHT).items():
            sized = spec | {"width": WIDTH, "background": LIGHT["card"], "autosize": "pad"}
            picture = vl_convert.vegalite_to_png(sized, vl_version="5.21", scale=SCALE)
            file = target / f"{name}.png"
            file.write_bytes(picture)
            files.append(file)
        return files

    def __repr__(self) -> str:
        head = self.data["headline"]
        return (
            f"<Report of {self.data['bandit']!r}: {head['decisions']:,} decisions,"
            f" {head['rewards']:,} rewards>"
        )

    def _repr_html_(self) -> str:
        page = escape(self.html())
        return f'<iframe srcdoc="{page}" width="100%" height="{FRAME}" style="border:0"></iframe>'


def learned(log: DecisionLog) -> tuple[Estimate | None, Evidence | None]:
    """Return the model that the bandit of a journal has learned, and the evidence for its checks.

    Both are None if the journal does not describe the policy.
    """
    try:
        # The only prior that can be written as text is None.
        policy = as_whole_policy(log.settings["policy"].replace("prior=None, ", ""))
    except (BelatedError, KeyError):  # the policy is custom
        return None, None
    fold = log.fold(policy, log.until)
    fold.load(log.journal)
    fold.catch_up(log.journal)
    return fold.learner.estimate, evidence_of(fold)


def _identity(facts: Facts) -> dict[str, Any]:
    table, family, settings = facts.table, facts.log.family, facts.log.settings
    window, retention = table.rewards.window_us, table.retention
    return {
        "bandit": facts.log.name,
        "policy": settings.get("policy", "").partition("(")[0],
        "family": type(family).__name__,
        "dim": facts.rows.shape[1] if len(facts.rows) else None,
        "actions": facts.actions,
        "from": facts.calendar.start // 1000,
        "as_of": table.as_of // 1000,
        "period": facts.calendar.name,
        "period_ms": facts.calendar.step // 1000,
        "partial": facts.calendar.partial,
        "unit": "reward",
        "currency": "",
        "rewards": {
            "kind": type(table.rewards).__name__,
            "default": table.rewards.default if table.conversions else None,
            "window_days": None if window is None else short(window / DAY),
            "retention_days": None if retention is None else short(retention / DAY),
            "shares": facts.bounds == (0.0, 1.0),
        },
    }
