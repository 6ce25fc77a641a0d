"""The report as one HTML file: styles, script and data are inside, nothing is fetched."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
from html import escape
from importlib.resources import files

from cvgnn._version import __version__
from cvgnn.report import html
from cvgnn.report.build import Report
from cvgnn.report.colors import DASHES
from cvgnn.report.diagnoses import Shown

_ASSETS = files("cvgnn.report") / "assets"
_SCRIPTS = ("scale", "dom", "chart", "zoom", "report")


def render(report: Report, *, title: str, command: str) -> str:
    """The page.

    Args:
        report: what it shows.
        title: of the page.
        command: that makes it.
    """
    script = "".join((_ASSETS / f"{name}.js").read_text(encoding="utf-8") for name in _SCRIPTS)
    style = (_ASSETS / "report.css").read_text(encoding="utf-8")
    parts = _sections(report)
    contents = "".join(f'<li><a href="#{key}">{escape(name)}</a></li>' for key, name, _ in parts)
    body = "".join(f'<section id="{key}"><h2>{escape(name)}</h2>\n{text}</section>\n' for key, name, text in parts)
    warnings = "".join(f"<li>{escape(words)}</li>" for words in report.warnings)
    drawn = [*report.figures, *(figure for shown in report.diagnoses for figure in shown.figures)]
    data = {"figures": [dataclasses.asdict(figure) for figure in drawn], "dashes": DASHES}
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{_policy(script)}">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
<header>
<h1>{escape(title)}</h1>
<p>{escape(report.summary)}</p>
{f'<ul class="warnings">{warnings}</ul>' if warnings else ""}
<nav aria-label="Contents"><ul>{contents}</ul></nav>
<noscript><p class="warnings">The curves need JavaScript; the tables and heat maps do not.</p></noscript>
</header>
<main>
{body}</main>
<footer><p>Made by cvgnn {escape(__version__)} with <code>{escape(command)}</code></p></footer>
<script type="application/json" id="data">{embedded(data)}</script>
<script>{script}</script>
</body>
</html>
"""


def embedded(data: object) -> str:
    """A value as JSON that can stand inside a script element, whatever its texts are.

    >>> embedded({"name": "</script>"})
    '{"name":"\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026")


def _policy(script: str) -> str:
    """Only our own script runs, and nothing is fetched, even if a name got past the escaping."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


def _sections(report: Report) -> list[tuple[str, str, str]]:
    """Anchor, title and content of every section that has something to show."""
    drawn = {figure.key: (figure.title, _figure(figure.key, figure.caption)) for figure in report.figures}
    protocols = "" if report.table_5 is None else html.table(report.table_5, kind="table5")
    found = [
        ("accuracy", *drawn.get("accuracy", ("", ""))),
        ("table5", "Table 5, by both protocols", protocols),
        ("loss", *drawn.get("loss", ("", ""))),
        ("seconds", *drawn.get("seconds", ("", ""))),
        ("appendix-b", "Best settings (Appendix B)", _APPENDIX * bool(report.appendix_b) + "".join(
            html.table(content, kind="appendix") for content in report.appendix_b)),
        ("heat", "Hyperparameter heat maps", "".join(html.heat(content) for content in report.heat)),
        *((shown.key, shown.title, _diagnosis(shown)) for shown in report.diagnoses),
        ("origin", "Where every number comes from", _origin(report) if report.runs.rows else ""),
    ]  # fmt: skip
    return [part for part in found if part[2]]


_APPENDIX = (
    "<p>What a choice among the settings that were run would take. By validation accuracy: the mean over runs of the "
    "accuracy at the best epoch. By test accuracy: the mean over runs of the highest test accuracy over epochs, which "
    "is how the paper chose; it looks at the answers.</p>"
)


def _figure(key: str, caption: str) -> str:
    return f'<div class="figure" data-figure="{key}"></div><p class="note">{escape(caption)}</p>\n'


def _diagnosis(shown: Shown) -> str:
    """The finding, the figures two and two, the tables, and what the numbers come from."""
    figures = "".join(
        f"<div><h3>{escape(figure.title)}</h3>{_figure(figure.key, figure.caption)}</div>" for figure in shown.figures
    )
    tables = "".join(html.table(table, kind="diagnosis") for table in shown.tables)
    origin = html.table(shown.origin, kind="origin pairs")
    settings = html.table(shown.settings, kind="origin")
    return (
        f'<p class="verdict">{escape(shown.verdict)}</p>\n<div class="pair">{figures}</div>\n{tables}{origin}'
        f"<details><summary>All settings ({len(shown.settings.rows):,})</summary>{settings}</details>\n"
    )


def _origin(report: Report) -> str:
    parts = [html.table(part, kind="origin") for part in (report.commands, report.machines) if part.rows]
    for name, part in (
        ("All settings", report.settings),
        ("All runs, each with the command that repeats it", report.runs),
    ):
        inner = html.table(part, kind="origin")
        parts.append(f"<details><summary>{name} ({len(part.rows):,})</summary>{inner}</details>\n")
    return "".join(parts)
