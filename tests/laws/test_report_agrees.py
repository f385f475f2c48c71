"""A report never contradicts itself: 200 random journals of all kinds, and what must hold of each.

Every number has one source, every interval contains its estimate, no value is impossible, and the
text of the page repeats the numbers of the data.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from belated import (
    Bandit,
    Bernoulli,
    ConversionsOnly,
    DefaultAfter,
    DelayedThompson,
    DelayedUCB,
    Explicit,
    Gaussian,
    Holdout,
    MemoryJournal,
    Number,
    PerArm,
    Poisson,
    Text,
)
from belated.cli.evaluate import describe
from belated.evaluation.sources import read_journal
from belated.exceptions import BelatedError
from belated.report import Report
from belated.report.gauges import Gauges
from belated.report.panels import PANELS, specifications
from belated.report.vega import complete

HOUR, DAY = 3_600_000_000, 86_400_000_000
START = 1_780_000_000_000_000
ACTIONS = ("red", "blue", "green", "gold")
#: What no page may contain.
WRONG = (r"\bnan\b", r"\bNone\b(?! of)", r"\binf\b", r"−0(?![.\d])", r"−−", r"\b1 orders\b")
#: A tile of the page: its label, its value and its interval.
TILE = r'lab">([^<]*)</div><div class="val">([^<]*)</div><div class="note">([^<]*?)(?:<|$)'
INTERVAL = r"^(?:95% interval: )?(\S+) to (\S+)$"


@dataclass
class World:
    """A random bandit that has played, and its report."""

    bandit: Bandit
    report: Report

    @property
    def data(self) -> dict[str, Any]:
        """Data of the report."""
        return self.report.data


def world(seed: int) -> World:
    """Play a random bandit: few or many decisions, any rewards, delays, mistakes and holdouts."""
    rng = np.random.default_rng(seed)
    now = [START + int(rng.integers(DAY))]
    family = (Bernoulli, Bernoulli, Gaussian, Poisson)[rng.integers(4)]()
    rewards: Any = (
        ConversionsOnly("3d"),
        ConversionsOnly("6h"),
        DefaultAfter("2d"),
        DefaultAfter("1d", value=0.5),
        DefaultAfter("2d", learn="together"),
        Explicit(),
        Explicit("1d"),
    )[rng.integers(7)]
    fields = {"member": Number(0, 1), "age": Number(0, 1), "country": Text(hash=2)}
    features = PerArm(ACTIONS[: rng.integers(2, 5)], context=fields)
    policy = (DelayedUCB, DelayedThompson)[rng.integers(2)]
    holdout = None
    if rng.random() < 0.7:
        rule = ("uniform", "first", "red")[rng.integers(3)]
        holdout = Holdout(float(rng.choice([0.1, 0.3, 0.5])), rule)
    retention = None if rng.random() < 0.3 else "8d"
    bandit = Bandit(
        policy=policy(features.dim, family, floor=0.05),
        rewards=rewards,
        features=features,
        holdout=holdout,
        retention=retention,
        journal=MemoryJournal("shop", clock=lambda: now[0]),
        clock=lambda: now[0],
        seed=seed,
    )
    pace = float(rng.choice([2e-3, 0.1, 0.4, 3.0]))  # hours between decisions
    rate = float(rng.choice([0.02, 0.2, 0.6, 0.98]))
    slow = float(rng.choice([0.01, 0.2, 1.0])) * 48 * max(pace, 0.05)  # hours to a reward
    waiting: list[tuple[int, str, float]] = []
    for n in range(int(rng.choice([1, 12, 60, 200]))):
        now[0] += int(rng.exponential(pace) * HOUR)
        for item in [entry for entry in waiting if entry[0] <= now[0]]:
            waiting.remove(item)
            report_reward(bandit, item[1], item[2], rng)
        context: dict[str, Any] = {"member": int(rng.random() < 0.4), "age": float(rng.random())}
        context["country"] = ("DE", "FR", "PL")[rng.integers(3)]
        decision = bandit.decide(context, id=f"d{n}")
        if not isinstance(rewards, Explicit) and rng.random() > rate:
            continue
        value = float(rng.random() < 0.5) if isinstance(rewards, Explicit) else 1.0
        if isinstance(family, Gaussian):
            value = float(rng.normal(0.2, 5.0))
        elif isinstance(family, Poisson):
            value = float(rng.poisson(3.0))
        waiting.append((now[0] + int(rng.exponential(slow) * HOUR), decision.id, value))
        if rng.random() < 0.02:
            bandit.void(decision.id)
    if rng.random() < 0.3:  # the last period has hardly begun
        now[0] = (now[0] // DAY + 1) * DAY + 60_000_000
        bandit.decide({"member": 1, "age": 0.5, "country": "DE"}, id="last")
    bandit.sync()
    return World(bandit, bandit.report())


def report_reward(bandit: Bandit, id: str, value: float, rng: np.random.Generator) -> None:
    """Report a reward; now and then twice, with another value, or of an unknown decision."""
    messages = [(id, value)]
    if rng.random() < 0.1:
        messages += [(id, value)] * 3
    if rng.random() < 0.05:
        messages.append((id, 1.0 - value if value in (0.0, 1.0) else value + 1.0))
    if rng.random() < 0.05:
        messages.append((f"unknown {id}", value))
    for message in messages:
        with suppress(BelatedError):  # refused, and not in the journal
            bandit.observe(*message)


@pytest.fixture(scope="module")
def worlds(full: bool) -> list[World]:
    """Random bandits: 200 with ``--full``."""
    return [world(seed) for seed in range(200 if full else 40)]


def objects(value: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every object in the data, with its path."""
    if isinstance(value, dict):
        yield path, value
        for name, part in value.items():
            yield from objects(part, f"{path}.{name}")
    elif isinstance(value, list):
        for part in value:
            yield from objects(part, f"{path}[]")


def each(worlds: list[World], check: Callable[[dict[str, Any]], None]) -> None:
    """Check the data of every report; a failure names the seed."""
    for seed, case in enumerate(worlds):
        try:
            check(case.data)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def test_intervals_contain_their_estimates(worlds: list[World]) -> None:
    """All of them, in every panel."""

    def check(data: dict[str, Any]) -> None:
        for path, row in objects(data):
            if "lo" in row and row["lo"] is not None:
                keys = {"p", "n", "F", "theta", "observed", "by_then"} & set(row)
                if ".forecast.next" in path:
                    keys = {"by_then"}  # "n" is what one period adds
                elif keys - {"n"}:
                    keys -= {"n"}  # a number of decisions
                (key,) = keys
                assert row["lo"] <= row[key] <= row["hi"], (path, row)

    each(worlds, check)


def test_no_value_is_impossible(worlds: list[World]) -> None:
    """No negative count, no share above 100 %, no reward outside its range, no NaN."""

    def check(data: dict[str, Any]) -> None:
        json.dumps(data, allow_nan=False)
        bounded = data["rewards"]["shares"]
        for path, row in objects(data):
            for key in ("n", "by_then", "total", "decisions", "rewards", "hours"):
                if path.startswith(".headline.extra") or path.startswith(".headline.spark"):
                    continue
                value = row.get(key)
                if isinstance(value, int | float):
                    assert value >= 0, (path, row)
            if isinstance(row.get("share"), float):
                assert 0.0 <= row["share"] <= 1.0, (path, row)
            if "F" in row:
                assert 0.0 <= row["lo"] <= row["hi"] <= 1.0, (path, row)
            per_decision = re.match(r"\.(earn|per_action|headline\.per_decision|calibration)", path)
            if per_decision and bounded and "lo" in row:
                assert 0.0 <= row["lo"] <= row["hi"] <= 1.0, (path, row)
        for value in data["headline"]["spark"]["per_decision"]:
            assert value is None or not bounded or 0.0 <= value <= 1.0
        extra_rewards = data["headline"].get("extra")
        if extra_rewards and bounded:
            assert max(abs(extra_rewards["lo"]), extra_rewards["hi"]) <= data["headline"]["bandit"]
        if "lift" in data["headline"]:
            assert data["headline"]["lift"]["lo"] >= -1.0
        if data["calibration"]:
            assert data["calibration"]["bias"] > -1.0
            assert all(row["bias"] > -1.0 for row in data["calibration"]["weeks"])

    each(worlds, check)


def test_counts_add_up(worlds: list[World]) -> None:
    """The same number everywhere it is shown."""

    def check(data: dict[str, Any]) -> None:
        head, quality = data["headline"], data["quality"]
        assert head["bandit"] + head["holdout"] <= head["decisions"]
        assert sum(head["spark"]["decisions"]) == head["decisions"]
        assert sum(head["spark"]["rewards"]) == head["rewards"] <= head["decisions"]
        assert head["rewards_last_day"] <= head["rewards"]
        assert head["rewards_late"] <= head["rewards"]
        assert data["health"]["decisions_last_day"] <= head["decisions"]
        assert data["pending"][-1]["n"] == head["pending"]["n"]
        assert head["pending"]["n"] <= head["decisions"] - head["rewards"]
        assert quality["affected"] <= quality["reward_messages"]
        for row in quality["rows"]:
            assert sum(row["daily"]) == row["n"]
            assert row["kind"] == "voided" or row["n"] <= quality["affected"]
        if data["feed"]:
            assert sum(row["n"] for row in data["feed"]["bins"]) == quality["reward_messages"]
        for rows, keys in ((data["share"], ["t"]), (data["segments"], ["by", "segment"])):
            shares: dict[Any, float] = defaultdict(float)
            for row in rows:
                shares[tuple(row[key] for key in keys)] += row["share"]
            assert all(total == pytest.approx(1.0, abs=2e-3) for total in shares.values())
        sizes: dict[str, int] = defaultdict(int)
        for row in data["segments"]:
            sizes[row["by"]] += row["n"]
        assert len(set(sizes.values())) <= 1, sizes

    each(worlds, check)


def test_lift_and_more_rewards_agree(worlds: list[World]) -> None:
    """They come from one interval: both contain zero or neither does, and the estimates match."""
    compared = 0
    for case in worlds:
        head = case.data["headline"]
        if "lift" not in head:
            continue
        compared += 1
        lift, extra = head["lift"], head["extra"]
        for end in ("lo", "p", "hi"):
            assert math.copysign(1, lift[end]) == math.copysign(1, extra[end]) or (
                abs(lift[end]) < 1e-5
            ), head
        base = head["per_decision_holdout"]["p"]
        clipped = case.data["rewards"]["shares"] and {head["per_decision"]["p"], base} & {0.0, 1.0}
        if not clipped:
            assert extra["p"] == pytest.approx(head["bandit"] * head["difference"]["p"], rel=2e-5)
            assert lift["p"] * base == pytest.approx(head["difference"]["p"], rel=1e-3, abs=1e-5)
            assert head["per_decision"]["p"] - base == pytest.approx(
                head["difference"]["p"], rel=1e-3, abs=1e-5
            )
    assert compared >= len(worlds) // 8


def test_what_is_still_to_come_agrees(worlds: list[World]) -> None:
    """The forecast only grows, up to its total, which is what the terminal prints too."""
    compared = 0
    for case in worlds:
        data = case.data
        if not data["forecast"]:
            continue
        compared += 1
        forecast, head = data["forecast"], data["headline"]
        by_then = [row["by_then"] for row in forecast["next"]]
        assert by_then == sorted(by_then)
        assert forecast["soon"]["n"] <= forecast["total"]["n"]
        assert by_then[-1] <= forecast["total"]["n"] <= head["decisions"] - head["rewards"]
        assert sum(row["n"] for row in forecast["next"]) == pytest.approx(by_then[-1], rel=1e-4)
        assert sum(row["n"] for row in forecast["past"]) == head["rewards"]
        log = case.bandit._log()
        table = log.table()
        expected = describe(table, log.predicted(table), [])["forecast"]["expected"][-1]
        rounded = [round(expected[name]) for name in ("mean", "low", "high")]
        assert rounded == [round(forecast["total"][name]) for name in ("n", "lo", "hi")]
    assert compared >= len(worlds) // 8


def test_the_journal_counts_the_same(worlds: list[World]) -> None:
    """Decisions, rewards and pending decisions of the report are those of the ledger."""
    for case in worlds:
        head, table = case.data["headline"], read_journal(case.bandit.journal)
        assert head["decisions"] == len(table.live())
        assert head["rewards"] == int(table.live().arrived.sum())
        assert head["voided"] == len(table) - len(table.live())
        assert head["pending"]["n"] == case.bandit.decision_counts["pending"]


def test_partial_periods_are_marked_and_not_in_titles(worlds: list[World]) -> None:
    """The last period is marked in tables; titles, legends and metrics use complete ones."""
    partial = 0
    for case in worlds:
        data = case.data
        if data["partial"] is None:
            continue
        times = {row["t"] for row in data["share"]}
        if data["partial"] not in times:
            continue
        (share,) = [panel for panel in PANELS if panel.name == "share"]
        marked = {row["t"] for row in share.table(data) if row["when"].endswith("(partial)")}
        assert marked == {data["partial"]}
        if len(times) > 1:
            partial += 1
            last = max(times - {data["partial"]})
            shares = {row["action"]: row["share"] for row in data["share"] if row["t"] == last}
            assert Gauges.of(data).share == shares
            assert {row["t"] for row in complete(data, data["explore"])} == times - {
                data["partial"]
            }
    assert partial >= len(worlds) // 10


def test_shares_and_exploration_agree(worlds: list[World]) -> None:
    """The effective number of actions in use is that of the shares of the same period."""

    def check(data: dict[str, Any]) -> None:
        for row in data["explore"]:
            if row["what"] == "in use overall":
                shares = [entry["share"] for entry in data["share"] if entry["t"] == row["t"]]
                entropy = -sum(share * math.log(share) for share in shares if share)
                assert row["n"] == pytest.approx(math.exp(entropy), rel=2e-3)
            assert 1.0 - 1e-9 <= row["n"] <= len(data["actions"]), row

    each(worlds, check)


def test_the_text_repeats_the_data(worlds: list[World]) -> None:
    """Printed intervals contain their estimates too, and sentence, tile and colour agree."""
    compared = 0
    for case in worlds:
        page = page_of(case.report)
        tiles = {name: (value, note) for name, value, note in re.findall(TILE, page)}
        for name, (value, note) in tiles.items():
            if ends := re.match(INTERVAL, note):
                low, high = map(number, ends.groups())
                assert low <= number(value) <= high, (name, value, note)
        head = case.data["headline"]
        kind = re.search(r'class="tile hero ?(\w*)"', page)
        verdict = re.search(r'class="verdict">(.*?)</p>', page)
        assert kind is not None
        assert verdict is not None
        if "lift" in head:
            compared += 1
            extra, lift = head["extra"], number(tiles["Lift over holdout"][0]) / 100
            assert lift == pytest.approx(head["lift"]["p"], abs=0.005)
            early = extra["lo"] <= 0.0 <= extra["hi"]
            assert verdict[1].startswith("Too early to tell") is early is (kind[1] == ""), head
            if not early:
                sentence = r"<b>(\S+) (more|fewer|less).*</b> than .* \((\S+) to (\S+)\)\.$"
                match = re.search(sentence, verdict[1])
                assert match is not None, verdict[1]
                estimate, low, high = map(number, (match[1], match[3], match[4]))
                assert low <= estimate <= high, verdict[1]
                assert (match[2] == "more") is (extra["p"] > 0)
        else:
            assert kind[1] == ""
            assert tiles["Lift over holdout"][0] == "not known"
    assert compared >= len(worlds) // 8


def number(text: str) -> float:
    """Read a number of the page, in whatever unit."""
    return float(re.sub(r"[^\d.−]", "", text).replace("−", "-"))


def page_of(report: Report) -> str:
    """Return the page without styles and scripts."""
    return re.sub(r"<(style|script).*?</\1>", "", report.html(), flags=re.DOTALL)


def test_pages_are_written(worlds: list[World]) -> None:
    """All titles are whole sentences, without NaN, None, a negative zero or a double sign."""
    for case in worlds[:: max(len(worlds) // 40, 1)]:
        currency = "" if case.data["rewards"]["shares"] else "EUR"
        for report in (case.report, case.report.with_units("order", currency)):
            text = re.sub(r"<[^>]*>", " ", page_of(report))
            assert not re.search(r"€\S*€|%%", text)
            for pattern in WRONG:
                assert not re.search(pattern, text), (
                    pattern,
                    re.search(f".{{60}}{pattern}.{{60}}", text),
                )
            specifications(report.data)
