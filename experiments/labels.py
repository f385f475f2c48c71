"""Names at the ends of lines, moved apart where they would cover one another."""

from __future__ import annotations

from collections.abc import Iterable

from matplotlib.axes import Axes

#: Points between the middles of two names.
GAP = 12.0


def end_labels(axis: Axes, x: float, names: Iterable[tuple[float, str, str]]) -> None:
    """Write each name beside its y, at least a line of text from the next.

    Call it when limits, scales and layout are final.

    Args:
        axis: to write on.
        x: where the lines end.
        names: y, words and colour of each.
    """
    to_points = 72.0 / axis.figure.dpi
    ordered = sorted(names, key=lambda name: name[0])
    heights = [axis.transData.transform((x, y))[1] * to_points for y, _, _ in ordered]
    places = list(heights)
    for _ in range(200):  # neighbours push each other away, a little at a time
        moved = False
        for i in range(len(places) - 1):
            short = GAP - (places[i + 1] - places[i])
            if short > 0.01:
                places[i] -= short / 2
                places[i + 1] += short / 2
                moved = True
        if not moved:
            break
    for (y, words, colour), height, place in zip(ordered, heights, places, strict=True):
        axis.annotate(
            words, (x, y), xytext=(6, place - height), textcoords="offset points", color=colour,
            va="center", fontsize=9, annotation_clip=False,
        )  # fmt: skip
