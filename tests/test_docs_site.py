"""The documentation site: what its build makes of the repository, without running Sphinx."""

from __future__ import annotations

import importlib.util
import inspect
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import cvgnn

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def build_docs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_docs", ROOT / "tools/build_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_public_name_has_a_place(build_docs: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_docs, "SOURCE", tmp_path)
    build_docs.write_api()
    text = "".join(page.read_text() for page in sorted(tmp_path.glob("api/*.md")))
    documented = set(re.findall(r"\.\. auto\w+:: (\S+)", text))
    objects = {id(item) for name, item in build_docs.public_names().items() if name in documented}
    for name in cvgnn.__all__:
        item = getattr(cvgnn, name)
        if inspect.isclass(item) or inspect.isfunction(item):
            assert id(item) in objects, f"cvgnn.{name} has no place in the API reference"
    assert {f"cvgnn.{name}" for name in ("fit", "Graph", "ControlVariate")} <= documented
    # The groups name what is there; what they do not name is on the last page.
    groups = tomllib.loads((ROOT / "docs/api.toml").read_text())
    named = {name for group in groups.values() for name in group["names"].split()}
    assert named <= documented
    assert documented == build_docs.public_names().keys()


def test_every_page_has_its_place() -> None:
    """Each page of docs/ is in one toctree, so that the site's menu leads to it."""
    listed = []
    for page in ROOT.glob("docs/*.md"):
        for tree in re.findall(r"```\{toctree\}\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL):
            listed += [line for line in tree.splitlines() if line and not line.startswith(":")]
    assert len(listed) == len(set(listed))
    pages = {page.stem for page in ROOT.glob("docs/*.md")} - {"index"}
    outside = {"CONTRIBUTING", "SECURITY", "CHANGELOG", "examples/*", "benchmarks/*"}
    assert set(listed) == pages | outside


def test_requests_to_other_servers_are_found(build_docs: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<script async src="https://cdn.test/x.js"></script><a href="https://paper.test">paper</a><img src="b.png">'
        '<link href="//fonts.test/y.css" rel="stylesheet"><p>"https://text.test"</p>'
    )
    (tmp_path / "a.css").write_text('@import "https://styles.test/z.css"; p {background: url(img.png)}')
    found = [line.split(": ")[1] for line in build_docs.external_resources(tmp_path)]
    assert sorted(found) == ["//fonts.test/y.css", "https://cdn.test/x.js", "https://styles.test/z.css"]


def test_links_of_the_site(build_docs: ModuleType) -> None:
    assert build_docs.site_links("[x](../examples/own_csv.py) [y](../CONTRIBUTING.md)") == (
        "[x](examples/own_csv.md) [y](CONTRIBUTING.md)"
    )
    assert build_docs.site_links("see [files.md](files.md#tables) and [store.md](store.md)") == (
        "see [](files.md#tables) and [](store.md)"
    )


def test_broken_links_are_found_and_those_of_source_code_mended(build_docs: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "api").mkdir()
    (tmp_path / "_modules/cvgnn").mkdir(parents=True)
    (tmp_path / "api/graphs.html").write_text('<dt id="cvgnn.Graph"><dt id="cvgnn.data.as_graph">')
    source = tmp_path / "_modules/cvgnn/graph.html"
    source.write_text(
        '<a href="../../api/graphs.html#cvgnn.as_graph">docs</a><a href="../../api/graphs.html#cvgnn.no">'
    )
    (tmp_path / "a.html").write_text(
        '<h1 id="top"><a href="#top"><a href="#nope"><a href="api/graphs.html?q=1#cvgnn.Graph"><img src="b%20c.png">'
        '<a href="api"><a href="missing.html"><a href="https://elsewhere.test/x"><a href="mailto:a@b">'
    )
    (tmp_path / "b c.png").touch()
    build_docs.mend_source_links(tmp_path)
    assert '#cvgnn.data.as_graph"' in source.read_text()
    assert build_docs.broken_links(tmp_path) == [
        "_modules/cvgnn/graph.html: ../../api/graphs.html#cvgnn.no",
        "a.html: #nope",
        "a.html: missing.html",
    ]
