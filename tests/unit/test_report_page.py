"""The page of a report: it loads nothing, escapes everything, and can be read."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib import import_module
from itertools import product
from pathlib import Path
from pkgutil import iter_modules

import pytest

from belated import (
    Bandit,
    Bernoulli,
    ConversionsOnly,
    DefaultAfter,
    DelayedUCB,
    Explicit,
    MemoryJournal,
)
from belated.core.events import ModeChanged
from belated.core.rewards import Rewards
from belated.exceptions import InvalidInput
from belated.report import Report, panels
from belated.report.panel import Panel
from belated.report.panels import coefficients, cohorts, delay, earn, explore, foregone
from belated.report.panels.explore import explore_labels
from belated.report.panels.segments import STRONGEST
from belated.report.vega import DARK, LIGHT

HOSTILE = '</script><script>document.title="run"</script><img src=x onerror=document.title="run">'


@pytest.fixture(scope="module")
def report() -> Report:
    """Of a bandit whose names are an attack."""
    return hostile_report()


def hostile_report() -> Report:
    """A report of a bandit whose names are an attack."""
    now = [1_780_000_000_000_000]
    bandit = Bandit(
        policy=DelayedUCB(2, Bernoulli(), floor=0.3),
        rewards=DefaultAfter("1d"),
        journal=MemoryJournal("offers & more", clock=lambda: now[0]),
        clock=lambda: now[0],
        seed=1,
    )
    for n in range(200):
        now[0] += 1_800_000_000
        bandit.decide(rows=[[1.0, 0.0], [0.0, 1.0]], actions=[HOSTILE, "plain"], id=f"d{n}")
        if n % 3 == 0:
            bandit.observe(f"d{n}", 1.0)
    bandit.journal.append([ModeChanged(now[0], "baseline", HOSTILE, f"Ada {HOSTILE}")])
    bandit.sync()
    return bandit.report()


def test_it_is_one_file_that_loads_nothing(report: Report) -> None:
    """No address, no eval: the policy names the two scripts by their digests."""
    page = report.html()
    assert len(page.encode()) < 2_000_000
    for tag in tags_of(page):
        assert not re.search(r"https?:|src=|<link|<img|<iframe", tag), tag
    assert not re.search(r"url\(|@import", page[: page.index("</style>")])
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    csp = policy[1].replace("&#x27;", "'")
    assert "default-src 'none'" in csp
    assert "unsafe-eval" not in csp
    scripts = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    assert len(scripts) == 2
    for script in scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in csp


def test_names_are_escaped(report: Report) -> None:
    """Nothing that a client named is HTML, neither in text nor in data."""
    page = report.html()
    assert not [tag for tag in tags_of(page) if tag.startswith("<img") or "onerror" in tag]
    assert len(re.findall(r"<script>.*?</script>", page, flags=re.DOTALL)) == 2
    assert "&lt;img src=x" in page
    assert "offers &amp; more" in page
    assert " by Ada &lt;/script&gt;" in page  # who changed the mode


def tags_of(page: str) -> list[str]:
    """All tags but those inside scripts."""
    outside = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    return [re.sub(r'aria-label="[^"]*"', "", tag) for tag in re.findall(r"<[a-z][^>]*>", outside)]


@pytest.mark.parametrize(
    ("rewards", "said"),
    [
        (ConversionsOnly("7d"), "only conversions are reported, within 7 days"),
        (DefaultAfter("7d", value=0.5), "a missing reward means 0.5 after 7 days"),
        (Explicit("7d"), "a missing reward says nothing"),
    ],
)
def test_it_says_what_a_missing_reward_means(rewards: Rewards, said: str) -> None:
    """Below the name of the bandit."""
    bandit = Bandit(["blue", "red"], rewards=rewards, seed=1)
    bandit.decide()
    assert said in bandit.report().html()


@pytest.mark.parametrize(("last", "side"), [(9.8, "right"), (20.0, "left")])
def test_the_label_of_the_window_has_room(last: float, side: str) -> None:
    """It is on that side of the window's end where the chart is wider."""
    curve = [{"d": day, "F": day / last, "lo": 0.0, "hi": 1.0} for day in (0.0, last)]
    delays = {"curve": curve, "median": 1.0, "p90": 2.0, "window": 7.0, "in_window": 1.0}
    _, label, *_ = delay.chart({"delay": delays})["layer"]
    assert label["mark"]["align"] == side


def test_every_chart_has_its_table(report: Report) -> None:
    """For screen readers, and without scripts."""
    page = report.html()
    drawn = page.count('class="chart"')
    assert drawn >= 9
    assert page.count("<summary>Numbers</summary>") == drawn
    assert page.count('role="img" aria-label=') >= drawn


def test_every_panel_is_on_the_page() -> None:
    """One that no question lists would be missing from it."""
    modules = [
        import_module(f"{panels.__name__}.{module.name}")
        for module in iter_modules(panels.__path__)
    ]
    defined = {
        value.name
        for module in modules
        for value in vars(module).values()
        if isinstance(value, Panel)
    }
    assert defined == {panel.name for panel in panels.PANELS}
    assert len(defined) == len(panels.PANELS)


def _luminance(colour: str) -> float:
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: str, other: str) -> float:
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def _mixed(colour: str, ground: str, opacity: float) -> str:
    parts = [[int(color[n : n + 2], 16) for n in (1, 3, 5)] for color in (colour, ground)]
    pairs = zip(*parts, strict=True)
    return "#" + "".join(f"{round(opacity * p + (1 - opacity) * q):02x}" for p, q in pairs)


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_text_can_be_read(palette: dict[str, str]) -> None:
    """Text has a contrast of 4.5 at least, marks of 3 (WCAG 2.2, AA)."""
    for text, ground in product(
        ("ink", "muted", "accent", "warn", "good", "slate"), ("bg", "card")
    ):
        assert _contrast(palette[text], palette[ground]) >= 4.5, (text, ground)
    strongest = _mixed(palette["accent"], palette["card"], STRONGEST)
    assert _contrast(palette["ink"], strongest) >= 4.5
    for n in range(1, 9):
        assert _contrast(palette[f"a{n}"], palette["card"]) >= 3.0, n


def test_it_is_saved_by_its_ending(report: Report, tmp_path: Path) -> None:
    """As a page, or as data."""
    report.save(tmp_path / "report.html")
    report.save(tmp_path / "report.json")
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert (tmp_path / "report.json").read_bytes().startswith(b'{"schema":"belated-report/1"')
    with pytest.raises(InvalidInput, match=r"neither \.html nor \.json"):
        report.save(tmp_path / "report.txt")


def test_a_notebook_shows_it(report: Report) -> None:
    """In a frame of its own."""
    html = report._repr_html_()
    assert html.startswith('<iframe srcdoc="&lt;!doctype html&gt;')


def test_charts_are_pictures_too(report: Report, tmp_path: Path) -> None:
    """With the extra."""
    pytest.importorskip("vl_convert")
    files = report.save_charts(tmp_path)
    assert len(files) >= 9
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in files)


@pytest.mark.parametrize(("overall", "alone", "above"), [(5.0, 5.0, False), (5.0, 1.5, True)])
def test_labels_of_two_lines_are_apart(overall: float, alone: float, above: bool) -> None:
    """Where lines are one, a name is above it and the other below."""
    series = {"in use overall": overall, "for one decision": alone}
    rows = [
        {"t": 86_400 * day, "what": name, "n": n} for day in range(9) for name, n in series.items()
    ]
    named = explore_labels(rows, room=0.12 * 5)
    assert [label["above"] for label in named] == [True, above]
    assert [label["at"] for label in named] == [overall, alone]


@pytest.mark.parametrize(
    ("choices", "title"),
    [(1.1, "The bandit is nearly certain about each"), (2.4, "The bandit chooses between 2.4")],
)
def test_the_title_says_how_certain_the_bandit_is(choices: float, title: str) -> None:
    """About one decision; and how many actions are in use."""
    rows = [{"what": "for one decision", "n": choices}, {"what": "in use overall", "n": 2.9}]
    data = {"explore": rows, "actions": ["a", "b", "c", "d"], "period": "day"}
    title_text = explore.words(data).title
    assert title_text.startswith(title)
    assert title_text.endswith("2.9 of 4 actions are in use")


@pytest.mark.parametrize(
    ("family", "theta", "title"),
    [
        ("Bernoulli", 1.67, "“returning” multiplies the odds of bundle by 5.3"),
        ("Bernoulli", 800.0, "“returning” multiplies the odds of bundle by more than 1,000"),
        ("Gaussian", -0.5, "“returning” lowers the reward of bundle by €0.50"),
    ],
)
def test_the_title_names_the_clearest_effect(family: str, theta: float, title: str) -> None:
    """As a factor, or as a difference."""
    rows = [{"name": "returning", "action": "bundle", "theta": theta, "lo": theta, "hi": theta}]
    data = {"coefficients": rows, "family": family, "currency": "EUR", "rewards": {"shares": False}}
    title_text = coefficients.words(data).title
    assert title_text == f"Clearest effect: {title}"
    rows[0] |= {"lo": -900.0, "hi": 900.0}
    assert coefficients.words(data).title == "No effect is clear yet: all intervals contain zero"


@pytest.mark.parametrize("higher", ["Bandit", "Holdout"])
def test_labels_are_beyond_their_lines(higher: str) -> None:
    """The label of the higher line is above all of its end, the other below."""
    means = {arm: [0.2, 0.2, 0.2, 0.2, 0.3, 0.4] for arm in ("Bandit", "Holdout")}
    means[higher] = [0.5, 0.5, 0.5, 0.5, 0.7, 0.6]
    rows = [
        {"t": n, "arm": arm, "p": means[arm][n], "lo": 0.0, "hi": 1.0}
        for n in range(6)
        for arm in means
    ]
    labels = {row["arm"]: row["at"] for row in earn.earn_labels(rows)}
    lower = ({"Bandit", "Holdout"} - {higher}).pop()
    assert labels == pytest.approx({higher: 0.75, lower: 0.25})
    rows_alone = [row for row in rows if row["arm"] == higher]
    assert [row["at"] for row in earn.earn_labels(rows_alone)] == pytest.approx([0.75])


@pytest.mark.parametrize(("decisions", "named"), [(20, False), (2_000, True)])
def test_a_cohort_is_named_only_if_its_difference_is_no_chance(decisions: int, named: bool) -> None:
    """The share of 20 decisions may well be 30 % instead of 15 %, that of 2,000 may not."""
    lines = [{"cohort": 0, "age": 1.0, "share": 0.3, "n": decisions}]
    curves = {"lines": lines, "expected": [{"age": 1.0, "share": 0.15}]}
    data = {"cohorts": curves, "period": "day", "period_ms": 86_400_000, "from": 0, "as_of": 1}
    title = cohorts.words(data).title
    assert ("30.0% have a reward, not 15.0%" in title) is named
    assert named or title == "The rewards of every day arrive as expected"


def test_counts_have_labels_at_whole_numbers(report: Report) -> None:
    """Also when the largest count is 1."""
    vl_convert = pytest.importorskip("vl_convert")
    chart = panels.specifications(report.data, LIGHT)["feed"] | {"width": 300}
    picture = vl_convert.vegalite_to_svg(chart, vl_version="5.21")
    assert re.findall(r"<text[^>]*>(\d*)</text>", picture) == ["0", "1"]


@pytest.mark.parametrize(("first", "fell"), [(0.03, False), (0.06, True)])
def test_what_is_left_fell_only_if_the_interval_says_so(first: float, fell: bool) -> None:
    """An earlier estimate inside the interval of now is no change."""
    estimate = {"p": 0.02, "lo": 0.01, "hi": 0.04, "first": first, "total": 3.0}
    data = {"foregone": estimate, "rewards": {"shares": True}, "unit": "reward", "currency": ""}
    title = foregone.words(data).title
    assert title.startswith("What is left on the table fell from 6.0% to 2.0%") is fell
    assert fell or title == "2.0% per decision is left on the table"
