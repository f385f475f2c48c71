"""Configure Sphinx: ``nox -s docs`` builds the documentation."""

import re
from importlib.metadata import version as installed
from pathlib import Path

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

project = "belated"
author = "The belated authors"
copyright = author
version = release = installed("belated")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_static_path = ["_static"]
html_extra_path = ["llms.txt"]
html_search_scorer = str(Path(__file__).parent / "scorer.js")
html_css_files = ["pages.css"]
html_title = f"belated {release}"

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

default_role = "code"  # docstrings use `name`, like the pages
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_type_aliases = {
    name: name for name in ("Row", "Vector", "Matrix", "Event", "Context", "Actions")
}
maximum_signature_line_length = 90
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # the fields of a named tuple are documented by autodoc too


def setup(app: Sphinx) -> None:
    """Render formulas as MathML, which browsers display without scripts or a network."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.connect("autodoc-process-signature", _short_names)


html_math_renderer = "mathml"


def _short_names(
    app: Sphinx, what: str, name: str, item: object, options: object, signature: str, returned: str
) -> tuple[str, str] | None:
    """Use belated's names for array types, and write defaults as Python."""
    texts = [signature or "", returned or ""]
    for pattern, replacement in _SHORTER.items():
        texts = [re.sub(pattern, replacement, text) for text in texts]
    return (texts[0], texts[1]) if texts != [signature or "", returned or ""] else None


#: Texts that Sphinx cannot parse: it would break the signature at every comma.
_SHORTER = {
    r"TypeAliasForwardRef\('(\w+)'\)": r"\1",
    r"<factory>|<function [\w.]*<lambda>>": "...",
    r"<function (\w+)[^<>]*>": r"\1",
    r"<(?:\w+\.)*(\w+) object[^<>]*>": r"\1()",
    r"Tuning\([^()]*\)": "Tuning()",
}


def _inline(translator: HTML5Translator, node: nodes.math) -> None:
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _block(translator: HTML5Translator, node: nodes.math_block) -> None:
    translator.body.append(convert(node.astext(), display="block"))
    raise nodes.SkipNode
