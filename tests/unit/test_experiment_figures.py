"""Pictures of the experiments: for light and dark pages, and ratios with their intervals."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

pytest.importorskip("matplotlib")

from experiments.figures import COLOURS, DARK, LIGHT, band, figure, head, save
from experiments.panels import ratio

ROOT = Path(__file__).parents[2]


def _colours(file: Path) -> set[str]:
    return set(re.findall("#[0-9a-f]{6}", file.read_text(encoding="utf-8")))


class TestPictures:
    def test_a_picture_is_drawn_for_light_and_for_dark_pages(self, tmp_path: Path) -> None:
        """The same picture gives the same file, and none has a background."""
        for name in ("one.csv", "two.csv"):
            chart = figure(3.0)
            head(chart, "A title", "How it was measured")
            band(chart.subplots(), [0, 1], [1, 2], [0.1, 0.1], COLOURS[0])
            save(chart, tmp_path / name)
        assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
        light, dark = (_colours(tmp_path / f"one{ending}.svg") for ending in ("", "-dark"))
        assert {LIGHT.ink, LIGHT.grey, COLOURS[0].lower()} <= light
        assert {DARK.ink, DARK.grey, DARK.colours[0].lower()} <= dark
        assert "#ffffff" not in light  # the page shows through
        assert LIGHT.ink not in dark

    def test_a_colour_that_has_no_dark_twin_is_refused(self, tmp_path: Path) -> None:
        """Or it could be invisible there."""
        chart = figure(3.0)
        chart.subplots().plot([0, 1], color="#123456")
        with pytest.raises(KeyError, match="#123456"):
            save(chart, tmp_path / "table.csv")

    def test_every_committed_picture_has_both(self) -> None:
        """And the page shows both, with words for who cannot see them."""
        light = sorted(ROOT.glob("experiments/*/table.svg"))
        assert len(light) == 7
        page = (ROOT / "docs/explanation/beyond-the-paper.md").read_text(encoding="utf-8")
        for file in light:
            dark = file.with_stem("table-dark")
            for picture, theme in ((file, "light"), (dark, "dark")):
                assert picture.exists()
                path = picture.relative_to(ROOT).as_posix()
                assert f"{{image}} ../../{path}\n:class: only-{theme}\n:alt: " in page


class TestRatio:
    def test_the_interval_of_a_ratio_is_of_paired_seeds(self) -> None:
        """What varies with the seed in both is no error of the ratio."""
        base = pd.Series([1.0, 2.0, 3.0])
        assert ratio(2.0 * base, base) == pytest.approx((2.0, 2.0, 2.0))
        middle, low, high = ratio(pd.Series([2.0, 4.0, 9.0]), base)
        assert middle == pytest.approx(2.5)
        assert low < middle < high
        assert low * high == pytest.approx(middle**2)
