"""Labels at the ends of lines, moved apart where they would overlap."""

from __future__ import annotations

from collections.abc import Iterable

from matplotlib.axes import Axes

#: Minimum distance of the centres of two labels, in points.
GAP = 12.0


def end_labels(axis: Axes, x: float, names: Iterable[tuple[float, str, str]]) -> None:
    """Write each label next to its line, at least a line of text apart from the next.

    Call it when limits, scales and layout are final.

    Args:
        axis: the axes to write on.
        x: the end of the lines.
        names: y, text and colour of each label.
    """
    to_points = 72.0 / axis.figure.dpi
    ordered = sorted(names, key=lambda name: name[0])
    heights = [axis.transData.transform((x, y))[1] * to_points for y, _, _ in ordered]
    places = list(heights)
    for _ in range(200):  # neighbours repel each other, a little at a time
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
