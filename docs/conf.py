"""Sphinx: `nox -s docs` builds the documentation."""

from importlib.metadata import version as installed

project = "belated"
author = "The belated authors"
copyright = author
version = release = installed("belated")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"belated {release}"

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

default_role = "code"  # docstrings write `name`, as the pages do
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_member_order = "bysource"
autodoc_typehints = "description"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
