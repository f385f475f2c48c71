"""Colours by what they mean: CSS variables in a page, plain colours in a picture.

``tests/unit/test_report_page.py`` measures their contrast.
"""

from __future__ import annotations

from typing import Any

LIGHT = {
    "bg": "#f6f8fb", "card": "#ffffff", "ink": "#1a1f36", "muted": "#5b6478", "grid": "#e6eaf1",
    "accent": "#3a5bd9", "slate": "#5f6a7e", "warn": "#c2410c", "good": "#0b7a53",
    "onfill": "#ffffff", "a1": "#3a5bd9", "a2": "#b4560f", "a3": "#0f7f71", "a4": "#a03a8c",
    "a5": "#5f6b7d", "a6": "#8a6d00", "a7": "#2b7bb0", "a8": "#b3374f",
}  # fmt: skip
DARK = {
    "bg": "#0d1117", "card": "#161c26", "ink": "#e8ecf4", "muted": "#9aa5b8", "grid": "#28303d",
    "accent": "#7c9cff", "slate": "#a3aec0", "warn": "#ff9a5c", "good": "#4fd6a0",
    "onfill": "#0d1117", "a1": "#7c9cff", "a2": "#f2a65a", "a3": "#4cc9b5", "a4": "#e08fd0",
    "a5": "#9aa5b8", "a6": "#d9c25a", "a7": "#6fc3f0", "a8": "#ff8fa3",
}  # fmt: skip
#: Colours of actions, one after the other.
ACTIONS = tuple(f"$a{n}" for n in range(1, 9))


def coloured(part: Any, palette: dict[str, str] | None = None) -> Any:
    """Return a specification with tokens such as ``$accent`` as colours.

    Args:
        part: of a specification.
        palette: the colours; None: CSS variables.

    >>> coloured({"fill": "$accent"}), coloured(["$ink"], LIGHT)
    ({'fill': 'var(--accent)'}, ['#1a1f36'])
    """
    if isinstance(part, dict):
        return {name: coloured(one, palette) for name, one in part.items()}
    if isinstance(part, list):
        return [coloured(one, palette) for one in part]
    if isinstance(part, str) and part[:1] == "$" and part[1:] in LIGHT:
        return f"var(--{part[1:]})" if palette is None else palette[part[1:]]
    return part
