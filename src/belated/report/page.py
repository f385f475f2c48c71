"""A report as one self-contained HTML file."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

import msgspec

from belated.report.html import around, element
from belated.report.panels import (
    QUESTIONS,
    Question,
    attention,
    headline,
    health,
    quality,
    specifications,
)
from belated.report.text import Data, moment, several, span
from belated.report.vega import DARK, LIGHT


@cache
def asset(name: str) -> str:
    """Return a script or a style sheet."""
    return files("belated.report").joinpath("assets", name).read_text(encoding="utf-8")


@cache
def script_hash(name: str) -> str:
    """Return the hash of a script for a content security policy."""
    digest = hashlib.sha256(asset(name).encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


@cache
def style() -> str:
    """Return the style sheet with the colours of the light and dark themes."""
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
    """Return the HTML file."""
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
        '<noscript><p class="wrap">The charts need JavaScript; the numbers below '
        "each chart do not.</p></noscript>"
        f'<script type="application/json" id="belated-data">{embedded(data)}</script>'
        f'<script type="application/json" id="belated-specs">{specs}</script>'
        f"<script>{asset('vega.js')}</script><script>{asset('report.js')}</script></body></html>"
    )


def embedded(value: Any) -> str:
    """Return a value as JSON for a script element, with `<` escaped so that it cannot end it."""
    return msgspec.json.encode(value).decode().replace("<", "\\u003c")


def body(data: Data) -> str:
    """Return the page without scripts, which is also shown in the web console."""
    links = "".join(
        element("a", question.question, href=f"#{question.name}") for question in QUESTIONS
    )
    button = '<button id="theme" type="button">Light / dark</button>'
    sections = "".join(_section(data, question) for question in QUESTIONS)
    return (
        f'<header class="wrap">{_head(data)}</header>'
        f'<nav aria-label="Sections"><div class="wrap">{links}{button}</div></nav>'
        f'<main class="wrap">{sections}</main><footer '
        f'class="wrap">{escape(_small_print(data))}</footer>'
    )


def _head(data: Data) -> str:
    mode, needs = data["health"]["mode"], len(data["attention"])
    kind = "pill" if mode == "learn" else "pill warn"
    pills = around("span", f'<span class="dot"></span>{escape(mode)}', cls=kind)
    if needs:
        count = f"{needs} thing{' needs' if needs == 1 else 's need'} attention"
        pills += around("span", f'<span class="dot"></span>{count}', cls="pill warn")
    before, emphasis, after = headline.verdict(data)
    verdict = f"{escape(before)}{element('b', emphasis)}{escape(after)}"
    return (
        f'<div class="id">{element("h1", data["bandit"])}{pills}</div>'
        f"{element('p', _meta(data), cls='meta')}{around('p', verdict, cls='verdict')}"
        f'<div class="tiles">{headline.tiles(data)}</div>{attention.items(data)}'
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


def _section(data: Data, section: Question) -> str:
    head = around("div", element("h2", section.question) + element("span", section.whom), cls="sh")
    shown = "".join(panel.card(data) for panel in section.panels)
    if section.name == "running":
        head += health.card(data)
        shown += quality.card(data)
    return around("section", f'{head}<div class="grid">{shown}</div>', id=section.name)


def _small_print(data: Data) -> str:
    partial = ""
    if data["partial"] is not None:
        partial = "The last period is partial, so titles ignore it. "
    return (
        "Intervals have a confidence level of 95%. The headline weights rewards by their delay; "
        f"numbers per {data['period']} weight each decision by the share of rewards expected by "
        f"its age. {partial}Times are in UTC. Computed from "
        f"{several(data['health']['records'], 'record')} of the journal; this page loads nothing "
        "from a server. Made by belated; charts by Vega-Lite."
    )
