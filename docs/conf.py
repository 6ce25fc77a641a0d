"""Sphinx configuration. `tools/build_docs.py` copies the pages and this file to build/docs and builds there."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx
from sphinx.highlighting import lexers

import cvgnn

project = "cvgnn"
release = cvgnn.__version__
copyright = "the cvgnn developers, Apache-2.0"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode", "sphinx_copybutton"]

# Markdown. `[text](page.md#a-heading)` works on GitHub and here.
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
myst_fence_as_directive = ["toctree"]
suppress_warnings = ["myst.header"]  # notes of benchmarks begin with a table or a smaller heading

# The API reference is made from the docstrings. What stands in backticks is code, and a link where it names something
# that has a place there.
default_role = "py:obj"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False

copybutton_prompt_text = r"^\$ "
copybutton_prompt_is_regexp = True
lexers["csv"] = TextLexer()

html_theme = "pydata_sphinx_theme"
html_title = "cvgnn"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "navigation_with_keys": False,
    "show_prev_next": True,
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "default",
}


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _block(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="math">{convert(node.astext(), display="block")}</div>')
    raise nodes.SkipNode


def _is_text(app: Sphinx, what: str, name: str, item: Any, options: Any, lines: list[str]) -> None:
    """Keep napoleon from reading the first words of an attribute's docstring as a type, up to a colon."""
    if what in {"attribute", "data", "property"}:
        lines.insert(0, "")


def setup(app: Sphinx) -> None:
    """Mathematics become MathML, which browsers draw by themselves; no script is loaded."""
    app.connect("autodoc-process-docstring", _is_text, priority=400)
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.config.html_math_renderer = "mathml"
