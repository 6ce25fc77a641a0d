"""Tables and heat maps as HTML. Every text is escaped: names in run folders may be anybody's."""

from __future__ import annotations

from html import escape

from cvgnn.report.colors import heat_color, text_color
from cvgnn.report.heat import Heat, HeatMap, Square
from cvgnn.report.tables import Cell, Table

_RANKS = {1: "best", 2: "second"}


def table(content: Table, *, kind: str = "") -> str:
    """A table that scrolls sideways where it is too wide.

    Args:
        content: what it shows.
        kind: CSS class.
    """
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in content.header)
    rows = "".join(_row(row, len(content.header)) for row in content.rows)
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in content.notes)
    return (
        f'<p class="note">{escape(content.caption)}</p>'
        f'<div class="scroll" role="region" aria-label="{escape(content.caption)}" tabindex="0"><table class="{kind}">'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>{notes}\n"
    )


def heat(content: Heat) -> str:
    """The maps of a data set."""
    methods = ""
    for name in dict.fromkeys(one.method for one in content.maps):
        maps = "".join(_map(one, content) for one in content.maps if one.method == name)
        methods += f'<div class="method"><h4>{escape(name)}</h4><div class="maps">{maps}</div></div>'
    note = f"<p class='note'>{escape(content.caption)}</p>\n"
    return f'<h3>{escape(content.dataset)}</h3><div class="methods" data-heat>{methods}</div>{note}'


def _row(row: list[Cell], columns: int) -> str:
    if len(row) == 1:
        return f'<tr class="over"><th scope="rowgroup" colspan="{columns}"><span>{_cell(row[0])}</span></th></tr>'
    first = f'<th scope="row">{_cell(row[0])}</th>'
    return f"<tr>{first}{''.join(f'<td>{_cell(cell)}</td>' for cell in row[1:])}</tr>"


def _cell(cell: Cell) -> str:
    text = escape(cell.text)
    if cell.rank in _RANKS:
        text = f'<span class="{_RANKS[cell.rank]}">{text}</span>'
    if cell.code:
        text = f"<code>{text}</code>"
    return text + (f"<small>{escape(cell.small)}</small>" if cell.small else "")


def _map(one: HeatMap, content: Heat) -> str:
    head = "".join(f'<th scope="col">{escape(x)}</th>' for x in one.x)
    rows = ""
    for name, squares in zip(one.y, one.squares, strict=True):
        cells = "".join(_square(square, content) for square in squares)
        rows += f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>'
    across = f'<tr><th class="corner">{escape(one.y_name)}</th>{head}</tr>'
    axis = f'<tr><th></th><th class="axis" colspan="{len(one.x)}">{escape(one.x_name)}</th></tr>'
    caption = f"<caption>{escape(one.title)}</caption>" if one.title else ""
    return f'<table class="heat">{caption}<thead>{axis}{across}</thead><tbody>{rows}</tbody></table>'


def _square(square: Square | None, content: Heat) -> str:
    if square is None:
        return '<td class="none">not run</td>'
    color = heat_color(square.value, content.low, content.high)
    kind = ' class="top"' if square.best else ""
    mark = "<sup>†</sup>" if square.paper else ""
    style = f"background:{color};color:{text_color(color)}"
    return f'<td{kind} style="{style}" title="{escape(square.words)}">{100 * square.value:.1f}{mark}</td>'
