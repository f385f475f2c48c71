"""Many requests in runs: what is chosen from together stays in the cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from belated.decider.requests import ParsedRequest

#: Numbers in the rows of a run, at most, unless it is of one request: a quarter of a megabyte.
AT_ONCE = 1 << 15


def runs_of(
    requests: Sequence[ParsedRequest], dim: int
) -> Iterator[tuple[slice, slice, list[int]]]:
    """Yield runs of requests: these, their lines in the table of all, and where each ends in it.

    Args:
        requests: in the order of their lines.
        dim: width of a row.

    >>> [run for run in runs_of([ParsedRequest(2), ParsedRequest(3)], dim=4)]
    [(slice(0, 2, None), slice(0, 5, None), [2, 5])]
    >>> [some for some, _, _ in runs_of([ParsedRequest(2), ParsedRequest(3)], dim=AT_ONCE)]
    [slice(0, 1, None), slice(1, 2, None)]
    """
    first = start = end = 0
    ends: list[int] = []
    for n, request in enumerate(requests):
        if ends and (end + request.n_rows) * dim > AT_ONCE:
            yield slice(first, n), slice(start, start + end), ends
            first, start, end, ends = n, start + end, 0, []
        end += request.n_rows
        ends.append(end)
    if ends:
        yield slice(first, len(requests)), slice(start, start + end), ends
