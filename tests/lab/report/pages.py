"""The elements and tables of a page."""

from __future__ import annotations

from html.parser import HTMLParser


class Page(HTMLParser):
    """A parsed page.

    Attributes:
        found: all elements with their attributes.
        scripts: the texts of scripts.
        tables: the rows of each section's tables, as the texts of their cells without small print.
    """

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.tables: dict[str, list[list[list[str]]]] = {}
        self._section = ""
        self._open: list[str] = []
        self.feed(page)

    def count(self, tag: str) -> int:
        return [name for name, _ in self.found].count(tag)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.found.append((tag, attributes))
        if tag == "section":
            self._section = attributes["id"] or ""
            self.tables[self._section] = []
        elif tag == "table":
            self.tables[self._section].append([])
        elif tag == "tr":
            self.tables[self._section][-1].append([])
        elif tag in ("td", "th"):
            self.tables[self._section][-1][-1].append("")
        if tag in ("td", "th", "small"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._open and self._open[-1] == tag:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if self.found and self.found[-1][0] == "script" and self.cdata_elem == "script":
            self.scripts.append(data)
        if self._open in (["td"], ["th"]):
            self.tables[self._section][-1][-1][-1] += data.strip()
