"""A report as one HTML file that asks nobody for anything."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

import msgspec

from belated.report.charts import DARK, LIGHT, specifications
from belated.report.page import cards, words
from belated.report.page.pieces import around, bars, element, line, tile, whisker
from belated.report.page.text import Data, amount, moment, several, signed, span, whole

#: What is asked: a word for links, the question, who asks, and the panels that answer.
QUESTIONS = (
    ("earning", "Does it earn?", "for whoever owns the result",
     ("earn", "per_action", "share", "segments")),
    ("waiting", "What is still to come?", "what has not arrived yet",
     ("delay", "forecast", "cohorts", "pending")),
    ("trust", "Can the model be trusted?", "for whoever owns the model",
     ("calibration", "foregone", "explore", "coefficients")),
    ("running", "Is it running well?", "for whoever is on call", ("feed", "lag")),
)  # fmt: skip


@cache
def asset(name: str) -> str:
    """A file beside this one."""
    return files("belated.report.page").joinpath(name).read_text(encoding="utf-8")


@cache
def script_hash(name: str) -> str:
    """What a content security policy calls a script."""
    digest = hashlib.sha256(asset(name).encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


@cache
def style() -> str:
    """Colours for light and dark, and the style sheet."""
    light, dark = (
        "".join(f"--{name}:{value};" for name, value in palette.items())
        for palette in (LIGHT, DARK)
    )
    return (
        f":root{{{light}}}"
        f"@media screen and (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}"
        f"@media screen{{:root[data-theme=dark]{{{dark}}}}}"
        f"{asset('style.css')}"
    )


def document(data: Data) -> str:
    """Return the file."""
    # What is between these tags is data: "<" is written so that no text can end them.
    specs = embedded(specifications(data))
    policy = (
        f"default-src 'none'; script-src {script_hash('vega.js')} {script_hash('report.js')};"
        " style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(data['bandit'])}: report of {escape(moment(data['as_of']))}</title>"
        f"<style>{style()}</style></head><body>{body(data)}"
        '<noscript><p class="wrap">The charts need JavaScript; their numbers are below '
        "each.</p></noscript>"
        f'<script type="application/json" id="belated-data">{embedded(data)}</script>'
        f'<script type="application/json" id="belated-specs">{specs}</script>'
        f"<script>{asset('vega.js')}</script><script>{asset('report.js')}</script></body></html>"
    )


def embedded(value: Any) -> str:
    """JSON that can stand inside a script element."""
    return msgspec.json.encode(value).decode().replace("<", "\\u003c")


def body(data: Data) -> str:
    """The page without its scripts: what a console shows too."""
    links = "".join(element("a", question, href=f"#{name}") for name, question, _, _ in QUESTIONS)
    button = '<button id="theme" type="button">Light / dark</button>'
    sections = "".join(_section(data, *one) for one in QUESTIONS)
    return (
        f'<header class="wrap">{_head(data)}</header>'
        f'<nav aria-label="Sections"><div class="wrap">{links}{button}</div></nav>'
        f'<main class="wrap">{sections}</main><footer '
        f'class="wrap">{escape(_small_print(data))}</footer>'
    )


def _head(data: Data) -> str:
    needs = data["attention"]
    mode = data["health"]["mode"]
    kind = "pill" if mode == "learn" else "pill warn"
    pills = around("span", f'<span class="dot"></span>{escape(mode)}', cls=kind)
    if needs:
        count = f"{len(needs)} thing{' needs' if len(needs) == 1 else 's need'} attention"
        pills += around("span", f'<span class="dot"></span>{count}', cls="pill warn")
    before, what, after = words.verdict(data)
    verdict = f"{escape(before)}{element('b', what)}{escape(after)}"
    items = "".join(
        f'<li><a href="#{item["panel"]}"><span class="dot"></span>{element("b", item["said"])} '
        f"{element('span', item['remedy'])}</a></li>"
        for item in needs
    )
    listed = f'<ul class="att" aria-label="Needs attention">{items}</ul>' if items else ""
    return (
        f'<div class="id">{element("h1", data["bandit"])}{pills}</div>'
        f"{element('p', _meta(data), cls='meta')}{around('p', verdict, cls='verdict')}"
        f'<div class="tiles">{_tiles(data)}</div>{listed}'
    )


def _meta(data: Data) -> str:
    rewards = data["rewards"]
    silence = "a missing reward says nothing"
    if rewards["kind"] == "ConversionsOnly":
        silence = f"only conversions are reported, within {span(rewards['window_days'])}"
    elif rewards["kind"] == "DefaultAfter":
        window = span(rewards["window_days"])
        silence = f"a missing reward means {rewards['default']:g} after {window}"
    parts = [f"{data['policy']}, {data['family']}" if data["policy"] else data["family"]]
    if data["dim"]:
        parts.append(several(data["dim"], "feature"))
    parts += [several(len(data["actions"]), "action"), silence]
    return f"{moment(data['from'])} to {moment(data['as_of'])} · {' · '.join(parts)}"


def _tiles(data: Data) -> str:
    head, spark = data["headline"], data["headline"]["spark"]
    tiles = []
    if "lift" in head:
        one = head["lift"]
        kind = "good" if one["lo"] > 0 else "bad" if one["hi"] < 0 else ""
        notes = [f"95 % between {signed(one['lo'])} and {signed(one['hi'])}"]
        picture = whisker(one["lo"], one["p"], one["hi"])
        tiles.append(tile("Lift over holdout", signed(one["p"]), notes, picture, f"hero {kind}"))
    else:
        said = "no holdout" if not head["holdout"] else "too few rewards in the holdout"
        tiles.append(tile("Lift over holdout", "not known", [said], "", "hero"))
    if "per_decision" in head:
        one = head["per_decision"]
        notes = [f"{amount(data, one['lo'])} to {amount(data, one['hi'])}"]
        if "per_decision_holdout" in head:
            notes.append(f"holdout {amount(data, head['per_decision_holdout']['p'])}")
        tiles.append(
            tile("Reward per decision", amount(data, one["p"]), notes, line(spark["per_decision"]))
        )
    else:
        tiles.append(tile("Reward per decision", "not known", ["fewer than 10 rewards"], ""))
    notes = [f"{whole(head['holdout'])} in the holdout", f"{whole(head['voided'])} voided"]
    tiles.append(tile("Decisions", whole(head["decisions"]), notes, bars(spark["decisions"])))
    late = next(row["n"] for row in data["quality"]["rows"] if row["kind"] == "late")
    notes = [
        f"{whole(data['health']['rewards_last_day'])} in the last 24 h",
        f"{whole(late)} after the window",
    ]
    tiles.append(tile("Rewards", whole(head["rewards"]), notes, bars(spark["rewards"])))
    notes = []
    if data["forecast"]:
        total = data["forecast"]["total"]
        notes = [
            f"{several(total['n'], 'reward')} to come",
            f"({whole(total['lo'])} to {whole(total['hi'])})",
        ]
    tiles.append(tile("Pending", whole(head["pending"]["n"]), notes, line(spark["pending"])))
    left = data["foregone"]
    if left:
        notes = [
            f"{amount(data, left['lo'])} to {amount(data, left['hi'])}",
            "per decision, lately",
        ]
        tiles.append(
            tile("Left on the table", amount(data, left["p"]), notes, line(spark["foregone"]))
        )
    else:
        tiles.append(tile("Left on the table", "not known", ["see below"], ""))
    return "".join(tiles)


def _section(data: Data, name: str, question: str, whom: str, panels: tuple[str, ...]) -> str:
    head = around("div", element("h2", question) + element("span", whom), cls="sh")
    shown = "".join(cards.card(data, panel) for panel in panels)
    if name == "running":
        head += cards.health(data)
        shown += cards.quality(data)
    return around("section", f'{head}<div class="grid">{shown}</div>', id=name)


def _small_print(data: Data) -> str:
    return (
        f"Intervals are 95 %. Lift and reward per decision weigh rewards by their delay; "
        f"per {data['period']}, "
        "a decision counts with the share of rewards expected by its age. "
        f"Times are UTC. Computed from {several(data['health']['records'], 'record')} of "
        f"the journal; "
        "this page asks no server for anything. Made by belated; charts by Vega-Lite."
    )
