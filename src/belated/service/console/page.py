"""The console's web page: a single file that connects only to its own service."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from html import escape
from importlib.resources import files

from belated.report.page import asset, style

#: Styles of the console, in addition to those of reports.
_STYLE = (
    ".top{padding-top:18px}.top form{display:flex;flex-wrap:wrap;gap:8px;align-items:center}"
    "#theme{margin-left:auto}"
    "pre{overflow:auto;max-height:320px;font-size:12px;margin:8px 0;white-space:pre-wrap}"
    ".warning{color:var(--warn)}.bandits th,.bandits td{text-align:left;font-size:13px}"
    "#list .card{overflow-x:auto}#bandit .grid{align-items:start}#report>.wrap>.none{margin:24px 0}"
    ".fields{display:flex;flex-wrap:wrap;gap:8px;margin:0 0 10px}"
    ".fields input{flex:1 1 12em;min-width:0}.fields select{max-width:100%}"
    "[hidden],.unkeyed .change,#report nav #theme{display:none!important}"
)


@cache
def console_page() -> bytes:
    """Return the console's HTML page."""
    here = files("belated.service.console")
    markup, code = (here.joinpath(f"console.{end}").read_text("utf-8") for end in ("html", "js"))
    scripts = asset("vega.js"), asset("report.js"), code
    digests = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    policy = (
        f"default-src 'none'; script-src {digests}; style-src 'unsafe-inline'; img-src data:;"
        " connect-src 'self'; base-uri 'none'; form-action 'none'"
    )
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>belated</title><style>{style()}{_STYLE}</style></head><body>{markup}"
        f"{''.join(f'<script>{script}</script>' for script in scripts)}</body></html>"
    )
    return page.encode()


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
