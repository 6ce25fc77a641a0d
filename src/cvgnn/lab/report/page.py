"""The report as one HTML file: styles, script and data are inside, and the page makes no requests."""

from __future__ import annotations

import base64
import functools
import hashlib
from dataclasses import asdict
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from cvgnn._version import __version__
from cvgnn.lab.recipes import paper_accuracy, paper_runs
from cvgnn.lab.report import colors
from cvgnn.lab.report.content import Report
from cvgnn.lab.report.run_groups import KEYS, best, ties, varying
from cvgnn.lab.report.typesetting import as_html, option_name
from cvgnn.lab.sweep.jobs import format_value
from cvgnn.utils.formatting import format_percent

# What templates use besides the report.
_GLOBALS = {"KEYS": KEYS, "best": best, "paper_accuracy": paper_accuracy, "paper_runs": paper_runs,
            "format_percent": format_percent, "format_value": format_value, "ties": ties,
            "varying": varying}  # fmt: skip
_ASSETS = Path(__file__).parent / "assets"
_SCRIPTS = ("scale", "dom", "chart", "zoom", "parallel", "report")


@functools.cache
def _environment() -> Environment:
    """The templates, with all texts escaped: names in run folders may come from anybody."""
    loader = FileSystemLoader(_ASSETS)
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.globals.update(_GLOBALS)
    environment.filters.update(typeset=as_html, option_name=option_name)
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return environment


def render(report: Report, *, title: str, command: str) -> str:
    """The page.

    Args:
        report: the content.
        title: of the page.
        command: the command that writes it, for the footer.
    """
    script = "".join((_ASSETS / f"{name}.js").read_text(encoding="utf-8") for name in _SCRIPTS)
    charts = [asdict(chart) for section in report.sections for chart in section.charts]
    return (
        _environment()
        .get_template("page.html")
        .render(
            report=report,
            title=title,
            command=command,
            version=__version__,
            palettes={"light": colors.COLORS, "dark": colors.DARK_COLORS},
            data={"charts": charts, "dashes": [*colors.DASHES, *colors.REFERENCE_DASHES]},
            script=Markup(script),
            # The policy allows only this script, and no request at all, even if a name got past the escaping.
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        )
    )
