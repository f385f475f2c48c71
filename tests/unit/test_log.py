"""A log in a frame agrees with a journal of the same decisions, and can become one."""

from __future__ import annotations

from pathlib import Path
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
    Greedy,
    MemoryJournal,
    PerArm,
    SQLiteJournal,
)
from belated.core.times import as_microseconds
from belated.evaluation import Log, columns
from belated.evaluation.columns import NEVER
from belated.evaluation.journal import JournalLog
from belated.exceptions import InvalidInput, NotEvaluable
from belated.features import Category, Number
from belated.journals import open_journal
from belated.testing import ManualClock

pd = pytest.importorskip("pandas")

HOUR = 3_600_000_000
START = 1_700_000_000_000_000
FEATURES = PerArm(
    ["red", "green", "blue"], context={"age": Number(18, 90), "country": Category(["AT", "DE"])}
)
SEMANTICS = [Explicit("20d"), DefaultAfter("5d"), ConversionsOnly("5d")]
#: Parts of a report that are of decisions, and not of the records beside them.
PANELS = (
    "from", "as_of", "actions", "headline", "earn", "per_action", "share", "delay", "forecast",
    "cohorts", "pending", "calibration", "foregone", "explore",
)  # fmt: skip
#: Columns of :func:`_frame_of`.
COLUMNS: dict[str, Any] = {
    "context": ["age", "country"],
    "decided_at": "effective",
    "rewarded_at": "rewarded",
    "reward": "value",
    "predicted": "mean",
    "id": "name",
}


def _policy() -> DelayedUCB:
    return DelayedUCB(floor=0.5)


def _played(rewards: Any, rounds: int = 400) -> tuple[Bandit, ManualClock]:
    """Return a bandit with about half of its rewards pending."""
    clock, rng = ManualClock(START), np.random.default_rng(3)
    journal = MemoryJournal(clock=clock)
    bandit = Bandit(
        FEATURES, rewards, policy=_policy(), journal=journal, clock=clock, seed=3,
        background_fits=False,
    )  # fmt: skip
    waiting: list[tuple[float, str, float]] = []
    for n in range(rounds):
        clock.now += HOUR
        for due, id, value in [entry for entry in waiting if entry[0] <= n]:
            bandit.observe(id, value)
            waiting.remove((due, id, value))
        country = ["AT", "DE", "FR"][int(rng.integers(3))]
        decision = bandit.decide(
            {"age": float(rng.integers(18, 90)), "country": country}, id=f"d{n}"
        )
        converted = rng.random() < {"red": 0.7, "green": 0.4, "blue": 0.2}[str(decision.action)]
        if converted or isinstance(rewards, Explicit):
            scale = 60 if converted else 400
            waiting.append((n + 1 + rng.exponential(scale), decision.id, float(converted)))
    bandit.sync()
    return bandit, clock


def _frame_of(bandit: Bandit) -> Any:
    """Return the decisions as another system would log them."""
    frame = bandit.frame(requests=True).rename_axis("name").reset_index()
    for name in ("age", "country"):
        frame[name] = [request["context"][name] for request in frame["request"]]
    frame["propensities"] = [request["propensities"] for request in frame["request"]]
    frame["value"] = frame["value"].where(frame["rewarded"].notna())
    return frame


def _log_of(bandit: Bandit, clock: ManualClock, frame: Any = None, **settings: Any) -> Any:
    defaults = COLUMNS | {"propensity": "propensities", "features": FEATURES, "as_of": clock.now}
    return Log.from_frame(
        _frame_of(bandit) if frame is None else frame,
        rewards=bandit.rewards,
        **(defaults | settings),
    )


def _same(one: Any, other: Any) -> None:
    """Assert that all numbers of two results differ by at most 1e-12."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            _same(one[name], other[name])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for pair in zip(one, other, strict=True):
            _same(*pair)
    elif isinstance(one, float) and not isinstance(other, str | None):
        assert one == pytest.approx(other, rel=1e-12, abs=1e-12, nan_ok=True)
    else:
        assert one == other


@pytest.mark.parametrize("rewards", SEMANTICS, ids=lambda semantics: type(semantics).__name__)
def test_a_frame_says_what_the_journal_says(rewards: Any) -> None:
    """Values, curve, forecast and report, to 1e-12."""
    bandit, clock = _played(rewards)
    log = _log_of(bandit, clock)
    assert 1.0 - log.table().arrived.mean() > 0.3
    matrix = np.random.default_rng(1).dirichlet(np.ones(3), len(log.table()))
    for target in ("uniform", "red", "first", matrix, lambda context, names: names[0]):
        _same(log.evaluate(target).to_dict(), bandit.evaluate(target).to_dict())
    _same(log.evaluate("red", limit="3d").to_dict(), bandit.evaluate("red", limit="3d").to_dict())
    _same(log.delay_curve().to_dict(), bandit.delay_curve().to_dict())
    _same(log.forecast(["12h", "1d"]).to_dict(), bandit.forecast(["12h", "1d"]).to_dict())
    _same(log.delay_depends().to_dict(), bandit.delay_depends().to_dict())
    since = START + 200 * HOUR
    greedy = Greedy(FEATURES.dim, Bernoulli())
    from_frame, from_bandit = (source.evaluate(greedy, since=since) for source in (log, bandit))
    _same(from_frame.to_dict(), from_bandit.to_dict())
    expected, actual = bandit.report().data, log.report().data
    for name in PANELS:
        _same(actual[name], expected[name])
    assert "<title>log: report of" in log.report().html()


@pytest.mark.parametrize("rewards", SEMANTICS, ids=lambda semantics: type(semantics).__name__)
def test_a_bandit_starts_from_a_log(rewards: Any, tmp_path: Path) -> None:
    """Its estimate is that of a bandit that made the decisions itself."""
    bandit, clock = _played(rewards)
    _log_of(bandit, clock).to_journal(f"sqlite:///{tmp_path}/offers.db?bandit=offers")
    journal = SQLiteJournal(tmp_path / "offers.db", bandit="offers", clock=clock)
    with Bandit(
        FEATURES, rewards, policy=_policy(), journal=journal, clock=clock, seed=1
    ) as started:
        assert started.decision_counts == bandit.decision_counts
        assert started.pending.count == bandit.pending.count
        restarted = Bandit(FEATURES, rewards, policy=_policy(), journal=bandit.journal, clock=clock)
        for copy in (bandit, restarted):
            for name in ("mean", "covariance"):
                actual, expected = (getattr(source.estimate, name) for source in (started, copy))
                np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-8)
        _same(started.evaluate("red").to_dict(), bandit.evaluate("red").to_dict())
        assert started.entry("d7").recorded == bandit.entry("d7").recorded
        started.observe(started.decide({"age": 30.0, "country": "AT"}), 1.0)


def test_libraries_of_frames_agree() -> None:
    """Pandas, polars, Arrow and lists, with lines in any order."""
    polars, arrow = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    bandit, clock = _played(DefaultAfter("5d"), rounds=300)
    frame = (
        _frame_of(bandit)
        .drop(columns=["request", "action"])
        .assign(action=_frame_of(bandit)["action"].astype(object))
    )
    names = [*COLUMNS["context"], "action", "propensities", *list(COLUMNS.values())[1:]]
    frame = frame[names]
    value = _log_of(bandit, clock, frame).evaluate("red").to_dict()
    lists = frame.assign(
        **{name: [None if moment is pd.NaT else moment for moment in frame[name]]
           for name in ("effective", "rewarded")}
    ).to_dict("list")  # fmt: skip
    for variant in (
        polars.from_pandas(frame), arrow.Table.from_pandas(frame), lists,
        frame.sample(frac=1.0, random_state=1),
    ):  # fmt: skip
        _same(_log_of(bandit, clock, variant).evaluate("red").to_dict(), value)


def test_columns_with_a_time_zone_are_converted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not converted value by value; null means never."""
    polars, arrow = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    calls: list[Any] = []
    monkeypatch.setattr(columns, "as_microseconds", lambda *arguments: calls.append(arguments))
    column = pd.Series(pd.to_datetime([START, None, START + HOUR], unit="us", utc=True))
    column = column.dt.tz_convert("Asia/Tokyo")
    expected = [START, NEVER, START + HOUR]
    for dates in (
        column, column.astype("datetime64[ns, Asia/Tokyo]"), pd.DatetimeIndex(column),
        polars.from_pandas(column), arrow.array(column), arrow.chunked_array([arrow.array(column)]),
    ):  # fmt: skip
        assert columns.times(dates, "made").tolist() == expected
    assert not calls


def test_times_without_a_zone_are_refused_with_the_remedy() -> None:
    """The remedy is code for the library; empty columns are accepted."""
    polars, arrow = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    column = pd.Series(pd.to_datetime(["2026-01-01", "2026-01-02"]))
    for series, remedy in (
        (column, r"frame\['when'\]\.dt\.tz_localize\('UTC'\)"),
        (polars.from_pandas(column), r"\.dt\.replace_time_zone\('UTC'\)"),
        (arrow.array(column), r"assume_timezone\(frame\['when'\], 'UTC'\)"),
        (column.to_numpy(), r"astype\('datetime64\[us\]'\)\.astype\(int\)"),
        (["2026-01-01"], "write '2026-01-01T00:00:00Z'"),
        (column.dt.to_pydatetime().tolist() if False else list(column), "UTC"),
    ):
        with pytest.raises(InvalidInput, match="when.* time zone.*" + remedy):
            columns.times(series, "when")
    assert columns.times(np.array(["NaT"], "datetime64[ns]"), "when").tolist() == [NEVER]


def _logged(count: int = 2_000, floor: float = 0.2, seed: int = 0) -> dict[str, Any]:
    """Return a log of two actions worth .2 and .6 with the propensities of chosen actions."""
    rng = np.random.default_rng(seed)
    member = rng.random(count) < 0.5
    share = np.where(member, 1.0 - floor / 2, floor / 2)  # of "b"
    b = rng.random(count) < share
    decided_at = START + np.arange(count) * HOUR
    delays = (rng.exponential(100, count) * HOUR).astype(np.int64)
    is_rewarded = decided_at + delays <= decided_at[-1]
    reward = (rng.random(count) < np.where(b, 0.6, 0.2)).astype(float)
    return {
        "member": member.tolist(),
        "action": np.where(b, "b", "a").tolist(),
        "propensity": np.where(b, share, 1.0 - share),
        "reward": np.where(is_rewarded, reward, np.nan),
        "decided_at": decided_at,
        "rewarded_at": np.where(is_rewarded, decided_at + delays, NEVER),
    }


def test_the_chosen_propensity_is_enough() -> None:
    """Values equal those with all propensities, with support from the choices."""
    frame = _logged()
    log = Log.from_frame(frame, rewards=Explicit(), context=["member"])
    p = np.array(frame["propensity"])
    propensities = [
        [p[n], 1 - p[n]] if a == "a" else [1 - p[n], p[n]] for n, a in enumerate(frame["action"])
    ]
    full_log = Log.from_frame(
        frame | {"propensity": propensities}, rewards=Explicit(), context=["member"]
    )
    for target in ("b", "uniform", lambda context, names: "ab"[context["member"]]):
        estimate, reference = log.evaluate(target), full_log.evaluate(target)
        for name in ("value", "ips", "snips", "dr", "kish_sample_size", "dm"):
            assert getattr(estimate, name) == pytest.approx(getattr(reference, name), rel=1e-12)
        assert estimate.effective_sample_size == pytest.approx(
            reference.effective_sample_size, rel=0.2
        )
        assert "estimated from the choices" in estimate.notes[0]
    value = log.evaluate("b")
    assert value.low < 0.6 < value.high
    with Bandit(
        full_log.features, Explicit(), policy=Greedy(), journal=full_log.journal,
        clock=lambda: START + 10_000 * HOUR,
    ) as bandit:  # fmt: skip
        _same(bandit.evaluate("b").ips, full_log.evaluate("b").ips)
    evaluation = JournalLog.of_journal(log.journal).evaluate("b")
    _same(evaluation.to_dict(), value.to_dict())


@pytest.mark.parametrize("floor", [0.0, 1e-9])
def test_what_a_log_never_tried_is_refused_by_its_weights(floor: float) -> None:
    """The importance weights do not average 1."""
    frame = _logged(floor=floor)
    log = Log.from_frame(frame, rewards=Explicit(), context=["member"])
    with pytest.raises(NotEvaluable, match=r"average 0\.\d+ instead of 1.* rarely tried"):
        log.evaluate("b")
    wrong_log = Log.from_frame(_logged() | {"propensity": [0.1] * 2_000}, rewards=Explicit())
    with pytest.raises(NotEvaluable, match=r"average \d\.\d+ instead of 1: the propensit"):
        wrong_log.evaluate("b")


def test_targets_are_given_contexts() -> None:
    """Rules return probabilities, or the name of an action."""
    log = Log.from_frame(_logged(), rewards=Explicit(), context=["member"])
    calls: list[Any] = []

    def rule(context: Any, names: Any) -> Any:
        calls.append((context, names))
        return [0.0, 1.0] if context["member"] else [1.0, 0.0]

    value = log.evaluate(rule).to_dict()
    assert calls[0][1] == ["a", "b"]
    members = np.array([context["member"] for context, _ in calls])
    named = log.evaluate(lambda context, names: "b" if context["member"] else "a")
    matrix = np.column_stack([~members, members]).astype(float)
    for evaluation in (
        named, log.evaluate(matrix), log.evaluate({"b": matrix[:, 1], "a": matrix[:, 0]}),
        log.evaluate(pd.DataFrame(matrix, columns=["a", "b"])),
    ):  # fmt: skip
        _same(evaluation.to_dict(), value)
    for target, message in (
        (lambda context, names: "c", "'c', but the offered actions"),
        (lambda context, names: [0.5, 0.6], "one probability per action"),
        (matrix[:5], r"shape \(5, 2\): pass 2,000 rows"),
        (matrix * 0.5, "row 0 of the probabilities .* add up to 1"),
        ({"a": matrix[:, 0]}, r"no column for the actions \['b'\]"),
        ("c", "does not offer the action 'c'"),
    ):
        with pytest.raises(InvalidInput, match=message):
            log.evaluate(target)


def test_a_bandit_without_features_gives_rows() -> None:
    """Rules receive rows if there are no contexts."""
    bandit = Bandit(policy=DelayedThompson(2, Bernoulli(), floor=0.5), rewards=Explicit(), seed=1)
    for n in range(100):
        bandit.observe(bandit.decide(None, ["a", "b"], rows=np.eye(2)), float(n % 2))
    evaluation = bandit.evaluate(lambda rows, names: rows[:, 1])
    _same(evaluation.to_dict(), bandit.evaluate("b").to_dict())


def test_as_of_leaves_out_what_came_later() -> None:
    """Later decisions are left out, and later rewards are pending."""
    frame = _logged()
    as_of = START + 500 * HOUR
    log = Log.from_frame(frame, rewards=Explicit(), as_of=as_of)
    assert len(log.table()) == 501
    table = log.table()
    assert table.as_of == as_of
    rewarded_at = np.array(frame["rewarded_at"])[:501]
    assert table.arrived.sum() == ((rewarded_at != NEVER) & (rewarded_at <= as_of)).sum()
    with pytest.raises(InvalidInput, match="before the first decision"):
        Log.from_frame(frame, rewards=Explicit(), as_of=START - 1)
    with pytest.raises(NotEvaluable, match="none after `since`"):
        log.evaluate("b", since=as_of + 1)


def test_contexts_of_one_column() -> None:
    """A column can hold mappings or lists of numbers, or be a single field."""
    frame = _logged(count=400)
    for column, dim in (
        ([{"x": 1.0 * member} for member in frame["member"]], 4),
        ([[1.0 * member, 0.5] for member in frame["member"]], 6),
        (frame["member"], 4),
    ):
        log = Log.from_frame(frame | {"known": column}, rewards=Explicit(), context="known")
        assert log.features.dim == dim
        assert log.evaluate("uniform").decisions == 400
    assert Log.from_frame(frame, rewards=Explicit()).features.dim == 2


def test_forecasts_of_a_frame_follow_a_fit() -> None:
    """Without predictions in the frame, conversions use fitted means."""
    frame = _logged()
    frame["rewarded_at"] = np.where(np.array(frame["reward"]) == 1.0, frame["rewarded_at"], NEVER)
    frame["reward"] = np.where(np.array(frame["reward"]) == 1.0, 1.0, np.nan)
    log = Log.from_frame(frame, rewards=ConversionsOnly("60d"), context=["member"])
    means = log.predicted(log.table()).mean
    b = np.array(frame["action"]) == "b"
    assert means[b].mean() > 2 * means[~b].mean()
    assert log.forecast().expected[0].mean > 0
    assert log.report().data["calibration"] is None
    total = log.report().data["forecast"]["total"]["n"]
    assert total == pytest.approx(log.forecast().expected[0].mean, rel=1e-4)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rewards": None}, r"`rewards` is missing: pass ConversionsOnly\('7d'\)"),
        ({"action": "arm"}, "`action` is 'arm', but the data frame has only the columns 'member'"),
        ({"decided_at": [1.7e9] * 3}, "looks like seconds"),
        ({"decided_at": [None] * 3}, "row 0 of the data frame: 'decided_at' is null"),
        ({"propensity": [0.5, 0.0, 0.5]}, r"row 1 .* 'propensity' must be above 0"),
        ({"propensity": [0.5, None, 0.5]}, r"row 1 .* 'propensity' must be above 0"),
        ({"propensity": [[0.5, 0.5], [1.0], [0.5, 0.5]]}, "row 1 .* not a list of 2 prob"),
        ({"action": ["a", "c", "b"], "actions": ["a", "b"]}, r"row 1 .* not one of the actions"),
        ({"reward": [1.0, None, None]}, r"row 1 .* 'rewarded_at' is set, but the reward is null"),
        ({"rewarded_at": [START, None, START + HOUR]}, "row 1 .* null, but there is a reward"),
        ({"rewarded_at": [START, START, START + HOUR]}, "row 1 .* is before the decision"),
        ({"reward": [1.0, 7.0, 0.0], "family": Bernoulli()}, "row 1 .* is outside 0 to 1"),
        ({"propensity": [[0.5, 0.5], [0.5, 0.6], [0.5, 0.5]]}, "row 1 .* that add up to 1"),
        ({"id": "action"}, "'action' contains 'b' more than once"),
        ({"reward": ["x", 1.0, 0.0]}, "'reward' must be a column of numbers"),
        (
            {"member": ["x", True, True], "features": PerArm(["a", "b"], context=["member"])},
            "row 0 of",
        ),
    ],
)
def test_what_cannot_be_read_is_named(change: dict[str, Any], said: str) -> None:
    """Errors name the line, the column and the remedy."""
    frame: dict[str, Any] = {
        "member": [True, False, True],
        "action": ["a", "b", "b"],
        "propensity": [0.5, 0.5, 0.5],
        "reward": [1.0, 0.0, 1.0],
        "decided_at": [START, START + 1, START + 2],
        "rewarded_at": [START, START + 1, START + HOUR],
    }
    settings: dict[str, Any] = {"rewards": Explicit(), "context": ["member"]}
    for name, value in change.items():
        (frame if isinstance(value, list) and name in frame else settings)[name] = value
    with pytest.raises(InvalidInput, match=said):
        Log.from_frame(frame, **settings).evaluate("uniform")


def test_rewards_that_are_known_need_no_times() -> None:
    """Times are optional if no reward is null; an empty frame is refused."""
    frame = {"action": ["a", "b"], "propensity": [0.5, 0.5], "reward": [1.0, 0.0],
             "decided_at": [START, START + HOUR]}  # fmt: skip
    assert Log.from_frame(frame, rewards=Explicit()).table().delay.tolist() == [0.0, 0.0]
    with pytest.raises(
        InvalidInput, match="`rewarded_at` is 'rewarded_at', but the data frame has only"
    ):
        Log.from_frame(frame | {"reward": [1.0, None]}, rewards=Explicit())
    with pytest.raises(InvalidInput, match="the data frame is empty"):
        Log.from_frame({name: [] for name in (*frame, "rewarded_at")}, rewards=Explicit())


def test_a_journal_of_a_log_has_its_times(tmp_path: Path) -> None:
    """Settlements have their times too; an existing bandit is refused."""
    log = Log.from_frame(_logged(count=300), rewards=Explicit("9d"), context=["member"], name="ads")
    address = f"sqlite:///{tmp_path}/ads.db?bandit=ads"
    log.to_journal(address)
    with open_journal(address) as journal:
        restored = JournalLog.of_journal(journal)
        assert repr(restored) == repr(log)
        expected, actual = log.table(), restored.table()
        assert actual.as_of == expected.as_of == as_microseconds(START + 299 * HOUR)
        for name in ("made", "rewarded", "state", "propensity", "late", "index"):
            np.testing.assert_array_equal(getattr(actual, name), getattr(expected, name))
    with pytest.raises(InvalidInput, match="already"):
        log.to_journal(address)


def test_contexts_are_encoded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large logs are not encoded, fitted or converted line by line."""
    encoded: list[int] = []
    encode = PerArm.tables

    def tables(features: PerArm, contexts: Any, actions: Any) -> Any:
        encoded.append(len(contexts))
        return encode(features, contexts, actions)

    monkeypatch.setattr(PerArm, "tables", tables)
    monkeypatch.setattr(PerArm, "rows", lambda *arguments: pytest.fail("a line by itself"))
    log = Log.from_frame(_logged(count=20_000), rewards=Explicit(), context=["member"])
    log.evaluate("b")
    assert encoded == [20_000]
    log.report()
    assert encoded == [20_000, 20_000, 12_000]
