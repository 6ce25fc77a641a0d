"""The page in a real browser: everything is drawn, curves can be switched off, read and zoomed, nothing complains."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cvgnn.config import GraphSource
from cvgnn.lab.report import build, collect, render
from tests.lab.report.browser import Browser, browser, missing
from tests.lab.report.folders import write_diagnosis, write_methods, write_run, write_search, write_sweep

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

PANEL = '[data-figure="accuracy"] .panel:nth-child(2) .plot'
CURVES = "return [...document.querySelectorAll('[data-curve]')].filter(e => e.dataset.curve === arguments[0]).length"
TICKS = f"return [...document.querySelectorAll('{PANEL} .tick')].map(e => e.textContent).join(' ')"
TIP = "return [...document.querySelectorAll('.tip')].filter(e => !e.hidden).map(e => e.innerText).join('|')"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    write_sweep(folder / "sweep")
    for seed in (0, 1):
        val, test = [0.3 + 0.02 * i + 0.01 * seed for i in range(20)], [0.25 + 0.02 * i for i in range(20)]
        write_run(folder / "long" / str(seed), val=val, test=test, seed=seed, source=GraphSource(dataset="<b>cora</b>"))
    (folder / "report.html").write_text(
        render(build(collect([folder])), title="Test", command="cvgnn report"), encoding="utf-8"
    )
    return folder / "report.html"


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


@pytest.mark.parametrize("width", [1600, 1400, 768, 390, 360])
def test_every_figure_is_drawn(window: Browser, page: Path, width: int) -> None:
    window.open(page, width=width)
    for key, panels in (("accuracy", 6), ("loss", 2), ("seconds", 4)):
        counts = window.run(
            "return [...document.querySelectorAll(arguments[0])].map(e => e.querySelectorAll('path[data-curve]').length)",
            f'[data-figure="{key}"] .plot',
        )
        assert len(counts) == panels
        assert sorted(set(counts)) == [1, 2]  # adam and sgd on one data set, adam alone on the other
    assert window.run("return document.querySelectorAll('[data-heat] .heat td').length") == 8
    assert not window.run("return /NaN|undefined|Infinity/.test(document.querySelector('main').innerHTML)")
    wide = window.run("const d = document.documentElement; return [d.scrollWidth, d.clientWidth]")
    assert wide == [width, width]  # tables scroll by themselves, the page does not
    columns = "return getComputedStyle(document.querySelector('.of-3')).gridTemplateColumns.split(' ').length"
    assert window.run(columns) == (1 if width < 700 else 2 if width < 1000 else 3)
    assert window.run("return [...document.querySelectorAll('h3')].map(e => e.textContent)").count("<b>cora</b>") == 2
    assert window.console() == []


def test_wide_tables_show_that_there_is_more(window: Browser, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for n in (1, 2):
        options = {"lr": 0.01 * n, "num_neighbors": n, "batch_size": 10 * n, "epochs": 2 + n, "hidden": 16 * n}
        write_methods(tmp_path / str(n), ("exact",), scheme="without-replacement", **options)
    write_run(tmp_path / "other", scheme="with-replacement")
    page = render(build(collect([tmp_path])), title="Test", command="cvgnn report")
    (tmp_path / "report.html").write_text(page, encoding="utf-8")
    window.open(tmp_path / "report.html", width=1280)
    appendix = (
        "const e = document.querySelector('#appendix-b .scroll'); return [e.querySelectorAll('thead th').length, "
    )
    assert window.run(appendix + "e.scrollWidth - e.clientWidth]") == [12, 0]
    window.open(tmp_path / "report.html", width=390, dark=True)
    for scrolled, more in ((0, True), (5000, False)):
        right, top = window.run(
            "const e = document.querySelector('#accuracies .scroll'); e.scrollIntoView({behavior: 'instant'});"
            "e.scrollLeft = arguments[0]; const b = e.getBoundingClientRect(); return [b.right, b.top]", scrolled
        )  # fmt: skip
        window.screenshot(tmp_path / "edge.png", whole=False)
        picture = image.open(tmp_path / "edge.png").convert("L")
        edge, beside = (picture.getpixel((x, top + 3)) for x in (right - 2, right + 8))
        assert (abs(edge - beside) > 20) == more  # a shadow
    assert window.console() == []


def test_the_legend_switches_a_curve_off_and_on(window: Browser, page: Path) -> None:
    window.open(page)
    before = window.run(CURVES, "sgd")
    others = window.run(CURVES, "adam")
    assert before == 2 * 3
    window.click('[data-figure="accuracy"] [data-label="sgd"]')
    assert window.run(CURVES, "sgd") == 0
    assert window.run(CURVES, "adam") == others
    pressed = "return [...document.querySelectorAll('[data-label=sgd]')].map(e => e.getAttribute('aria-pressed'))"
    assert set(window.run(pressed)) == {"false"}
    window.run("document.querySelector('[data-figure=loss] [data-label=sgd]').focus()")
    window.keys(" ")  # the keyboard does it too
    assert window.run(CURVES, "sgd") == before
    assert set(window.run(pressed)) == {"true"}
    assert window.console() == []


def test_pointing_reads_the_values(window: Browser, page: Path) -> None:
    window.open(page)
    window.pointer(PANEL, ("move", 0.99, 0.5))
    assert "epoch 20" in window.run(TIP)
    assert "adam\t68.50%\t68.00 to 69.00" in window.run(TIP)
    window.pointer("h1", ("move", 0.1, 0.5))
    assert window.run(TIP) == ""
    assert window.console() == []


def test_dragging_zooms_and_a_double_click_resets(window: Browser, page: Path) -> None:
    window.open(page)
    whole = window.run(TICKS)
    disabled = "return document.querySelector('[data-figure=accuracy] .reset').disabled"
    assert window.run(disabled)
    for reset in (
        lambda: window.pointer(PANEL, *[(what, 0.5, 0.5) for what in ("down", "up", "down", "up")]),  # type: ignore[misc]
        lambda: window.click('[data-figure="accuracy"] .reset'),
        lambda: window.keys("\ue00c"),  # Escape, with the focus where the mouse went down
    ):
        window.pointer(PANEL, ("down", 0.5, 0.5), ("move", 0.6, 0.5), ("up", 0.8, 0.5))
        assert window.run(TICKS) != whole
        assert "18" not in window.run(TICKS).split()
        assert not window.run(disabled)
        reset()
        assert window.run(TICKS) == whole
        assert window.run(disabled)
    assert window.console() == []


def test_the_whole_range_can_be_shown(window: Browser, tmp_path: Path) -> None:
    values = [0.1, 0.3, *(0.7 + 0.01 * (i % 3) for i in range(38))]
    write_run(tmp_path / "a", val=values, test=values)
    page = render(build(collect([tmp_path])), title="Test", command="cvgnn report")
    (tmp_path / "report.html").write_text(page, encoding="utf-8")
    window.open(tmp_path / "report.html")
    assert "10%" not in window.run(TICKS).split()
    window.click('[data-figure="accuracy"] .whole')
    assert "10%" in window.run(TICKS).split()
    assert window.console() == []


def test_keys_read_and_zoom(window: Browser, page: Path) -> None:
    window.open(page)
    window.run(f"document.querySelector('{PANEL}').focus()")
    window.keys("\ue014", "\ue014", "\ue012")  # right, right, left
    assert "epoch 11" in window.run(TIP)
    whole = window.run(TICKS)
    window.keys("+")
    assert window.run(TICKS) != whole
    window.keys("-")
    assert window.run(TICKS) == whole
    assert window.console() == []


def test_touch_reads_and_the_other_view_is_drawn(window: Browser, page: Path) -> None:
    window.open(page, width=390)
    window.pointer(PANEL, ("down", 0.98, 0.5), ("up", 0.98, 0.5), kind="touch")
    assert "epoch 20" in window.run(TIP)
    notes = "return document.querySelector('.notes').innerText"
    assert "learning rate 0.01, neighbors 2, batch size 512" in window.run(notes)
    second = "return document.querySelectorAll('.notes')[1].innerText"
    assert "learning rate 0.05, neighbors 2, batch size 20" in window.run(second)
    window.click('[data-figure="accuracy"] .views button:nth-child(2)')
    assert "learning rate 0.01, neighbors 2, batch size 10" in window.run(second)
    window.click('[data-figure="loss"] .log')
    assert window.run("return document.querySelectorAll('[data-figure=loss] path[data-curve]').length") == 3
    assert window.console() == []


def test_a_diagnosis_has_logarithmic_axes_and_a_reference(window: Browser, tmp_path: Path) -> None:
    write_diagnosis(tmp_path / "d")
    page = render(build(collect([tmp_path])), title="Test", command="cvgnn report")
    (tmp_path / "report.html").write_text(page, encoding="utf-8")
    plot = '[data-figure="estimator-citeseer-variance"] .plot'
    ticks = f"return [...document.querySelectorAll('{plot} .tick')].map(e => e.textContent)"
    for width in (1400, 390):
        window.open(tmp_path / "report.html", width=width)
        assert {"1", "10", "100", "0.1", "0.01"} <= set(window.run(ticks))
        assert window.run("const d = document.documentElement; return d.scrollWidth") == width
        assert not window.run("return /NaN|undefined|Infinity/.test(document.querySelector('main').innerHTML)")
    window.open(tmp_path / "report.html")
    assert window.run(f"return document.querySelectorAll('{plot} .reference').length") == 1
    window.pointer(plot, ("move", 0.53, 0.5))  # the middle of a logarithmic axis from 1 to 100
    tip = window.run(TIP)
    assert "step 10" in tip
    assert "cv 2\t0.05\t0.04 to 0.06" in tip
    assert "1/t at 1" in tip  # the reference has no point there
    before = window.run(ticks)
    window.pointer(plot, ("down", 0.5, 0.5), ("move", 0.6, 0.5), ("up", 0.8, 0.5))
    assert window.run(ticks) != before
    window.keys("\ue00c")  # Escape
    assert window.run(ticks) == before
    window.keys("+", "-")
    assert window.run(ticks) == before
    window.click('[data-figure="estimator-citeseer-variance"] [data-label="cv 2"]')
    assert window.run(CURVES, "cv 2") == 0
    assert window.console() == []


def test_a_random_search_is_a_scatter_and_a_parallel_plot(window: Browser, tmp_path: Path) -> None:
    write_search(tmp_path)
    page = render(build(collect([tmp_path])), title="Test", command="cvgnn report")
    (tmp_path / "report.html").write_text(page, encoding="utf-8")
    for width in (1400, 390):
        window.open(tmp_path / "report.html", width=width)
        points = "return document.querySelectorAll('[data-figure=search] path[data-curve]').length"
        assert window.run(points) == 3 * 12
        assert window.run("return document.querySelectorAll('.setting').length") == 12
        assert window.run("const d = document.documentElement; return d.scrollWidth") == width
        assert not window.run("return /NaN|undefined|Infinity/.test(document.querySelector('main').innerHTML)")
    window.run("document.querySelector('[data-figure=parallel] .plot').focus()")
    window.keys("\ue013")  # an arrow: the best setting
    tip = "return document.querySelector('[data-figure=parallel] .tip').innerText"
    assert window.run(tip) == "optimizer adam, learning rate 0.0511, hidden units 44, dropout 0.59: 51.00 %"
    window.pointer('[data-figure="search"] .plot', ("move", 0.9, 0.5))
    assert "learning rate" in window.run("return document.querySelector('[data-figure=search] .tip').innerText")
    assert window.console() == []


def test_coinciding_curves_are_named_and_have_markers(window: Browser, tmp_path: Path) -> None:
    for estimator in ("cv", "ns"):
        write_run(tmp_path / estimator, estimator=estimator)
    page = render(build(collect([tmp_path])), title="Test", command="cvgnn report")
    (tmp_path / "report.html").write_text(page, encoding="utf-8")
    window.open(tmp_path / "report.html")
    note = "return document.querySelector('[data-figure=accuracy] .panel .note').innerText"
    assert window.run(note) == "adam, estimator cv; and adam, estimator ns coincide."
    markers = "return document.querySelectorAll('[data-figure=loss] .plot .dot').length"
    assert window.run(markers) > 2
    assert window.console() == []
