"""Build the documentation site: python tools/build_docs.py [--serve] [--check] [--fresh]

Everything goes to build/docs: `source` (the pages of docs/, and pages made here: examples with their output, and the
API reference), `outputs` (of the examples, run again only where something changed) and `html`, the site.
"""

from __future__ import annotations

import argparse
import ast
import functools
import hashlib
import http.server
import importlib
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from base64 import b64decode
from html import unescape
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build/docs"
SOURCE, HTML, OUTPUTS = BUILD / "source", BUILD / "html", BUILD / "outputs"
PROJECT_PAGES = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")  # beside docs/ in the repository
PUBLIC = (
    "cvgnn", "cvgnn.data", "cvgnn.data.io", "cvgnn.data.store", "cvgnn.nn", "cvgnn.optim", "cvgnn.sampling",
    "cvgnn.training",
)  # fmt: skip


def public_names() -> dict[str, object]:
    """Every public name with its object: functions and classes, each under the first package that offers it."""
    found: dict[str, object] = {}
    for package in PUBLIC:
        module = importlib.import_module(package)
        # A package without `__all__` exports what it imports `as` itself.
        names = getattr(module, "__all__", None) or re.findall(
            r"^from \S+ import \w+ as (\w+)$", inspect.getsource(module), re.M
        )
        for name in names:
            item = getattr(module, name)
            if (inspect.isclass(item) or inspect.isfunction(item)) and item not in found.values():
                found[f"{package}.{name}"] = item
    return found


def site_links(text: str) -> str:
    """Links for the site: files beside docs/ are pages here, and a link named for its file is named for its page."""
    text = re.sub(r"\]\((?:\.\./|docs/)+", "](", text)
    text = re.sub(r"\]\(examples/(\w+)\.(?:py|ipynb)\)", r"](examples/\1.md)", text)
    return re.sub(r"\[(?:docs/)?[\w/]+\.md\](?=\([\w/]+\.md)", "[]", text)


def stage_pages() -> None:
    """Copy docs/ and the project's pages."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    shutil.copytree(ROOT / "docs", SOURCE)
    for name in PROJECT_PAGES:
        shutil.copy(ROOT / name, SOURCE / name)
    for page in SOURCE.rglob("*.md"):
        page.write_text(site_links(page.read_text(encoding="utf-8")), encoding="utf-8")


def write_api() -> None:
    """A page for each group of public names, and an index with the first sentence of each."""
    public = public_names()
    pages = tomllib.loads((ROOT / "docs/api.toml").read_text(encoding="utf-8"))
    listed = {name for page in pages.values() for name in page["names"].split()}
    if unknown := listed - public.keys():
        raise SystemExit(f"not public, but in a page of the API reference: {', '.join(sorted(unknown))}")
    index = [(ROOT / "docs/api.md").read_text(encoding="utf-8")]
    folder = SOURCE / "api"
    folder.mkdir()
    for name, page in pages.items():
        title, text = page["title"], page["text"]
        group = page["names"].split() or [each for each in public if each not in listed]
        lines = [f"# {title}", "", text, ""]
        index += [f"## [{title}](api/{name}.md)", "", text, "", "| name | |", "|---|---|"]
        for each in group:
            item = public[each]
            kind = "function" if inspect.isfunction(item) else "class"
            if kind == "class" and issubclass(item, Exception):  # type: ignore[arg-type]
                kind = "exception"
            members = ["   :members:"] if kind == "class" else []
            lines += ["```{eval-rst}", f".. auto{kind}:: {each}", *members, "```", ""]
            first_line = (inspect.getdoc(item) or "").partition("\n")[0].replace("|", r"\|")
            index.append(f"| [`{each}`](#{each}) | {first_line} |")
        index.append("")
        (folder / f"{name}.md").write_text("\n".join(lines), encoding="utf-8")
    index += ["```{toctree}", ":hidden:", "", *(f"api/{name}" for name in pages), "```"]
    (SOURCE / "api.md").write_text("\n".join(index), encoding="utf-8")


def code_hash() -> str:
    """Of all of the package: an example is run again when anything changed."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "src").rglob("*")):
        if path.suffix in {".py", ".pyi", ".toml", ".npz"}:
            digest.update(path.read_bytes())
    return digest.hexdigest()


def output_of(path: Path, code: str, fresh: bool) -> dict[str, object]:
    """What an example prints: `text` of a script, or the `cells` of a notebook."""
    key = hashlib.sha256(path.read_bytes() + code.encode()).hexdigest()[:16]
    kept = OUTPUTS / f"{path.stem}-{key}.json"
    if kept.exists() and not fresh:
        return json.loads(kept.read_text())  # type: ignore[no-any-return]
    print(f"running examples/{path.name}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        if path.suffix == ".py":
            environment = os.environ | {"COLUMNS": "100", "NO_COLOR": "1"}
            done = subprocess.run(
                [sys.executable, path], cwd=folder, capture_output=True, text=True, env=environment, check=False
            )
            if done.returncode:
                raise SystemExit(f"examples/{path.name} failed:\n{done.stdout}{done.stderr}")
            found: dict[str, object] = {"text": done.stdout}
        else:
            import nbclient
            import nbformat

            notebook = nbformat.read(path, as_version=4)
            resources = {"metadata": {"path": folder}}
            nbclient.NotebookClient(notebook, timeout=600, startup_timeout=600, resources=resources).execute()
            found = {"cells": notebook.cells}
    OUTPUTS.mkdir(parents=True, exist_ok=True)
    for old in OUTPUTS.glob(f"{path.stem}-*.json"):
        old.unlink()
    kept.write_text(json.dumps(found))
    return found


def blank_output(path: Path) -> dict[str, object]:
    """In place of `output_of`, where nothing is run: a script prints nothing, a notebook is as it is committed."""
    import nbformat

    return {"text": ""} if path.suffix == ".py" else {"cells": nbformat.read(path, as_version=4).cells}


def script_page(path: Path, output: str) -> str:
    """Title and text from the docstring, then the script and what it printed."""
    code = path.read_text(encoding="utf-8")
    title, _, text = (ast.get_docstring(ast.parse(code)) or "").partition("\n")
    body = code.split('"""', 2)[2].strip()
    source = f"*`examples/{path.name}`*"
    return "\n".join([
        f"# {title.rstrip('.')}", "", text.strip(), "", source, "", "```python", body, "```", "", "It prints:", "",
        "```text", output.rstrip(), "```", "",
    ])  # fmt: skip


def notebook_page(path: Path, cells: list[dict[str, object]]) -> str:
    """The cells with their outputs; figures are files beside the page."""
    lines: list[str] = []
    for number, cell in enumerate(cells):
        source = str(cell["source"])
        if cell["cell_type"] == "markdown":
            lines += [source, ""]
            continue
        lines += ["```python", source, "```", ""]
        for output in cell["outputs"]:  # type: ignore[attr-defined]
            data = output.get("data", {})
            if "image/png" in data:
                name = f"{path.stem}_{number}.png"
                (SOURCE / "examples" / name).write_bytes(b64decode(data["image/png"]))
                lines += [f"![Figure of the cell above]({name})", ""]
            elif text := output.get("text") or data.get("text/plain"):
                lines += ["```text", text.rstrip(), "```", ""]
    return "\n".join([*lines, f"*`examples/{path.name}`*", ""])


def write_examples(fresh: bool, check: bool) -> None:
    """A page for each example, with its output; for a check without."""
    (SOURCE / "examples").mkdir()
    code = code_hash()
    for path in sorted([*ROOT.glob("examples/*.py"), *ROOT.glob("examples/*.ipynb")]):
        output = blank_output(path) if check else output_of(path, code, fresh)
        page = script_page(path, str(output["text"])) if path.suffix == ".py" else notebook_page(path, output["cells"])  # type: ignore[arg-type]
        (SOURCE / "examples" / f"{path.stem}.md").write_text(site_links(page), encoding="utf-8")


def external_resources(html: Path) -> list[str]:
    """What a browser would fetch from another server: scripts, styles, fonts, images, frames."""
    tag = re.compile(
        r"<(?:script|link|img|iframe|source|video|audio|object|embed)\b[^>]*?\s"
        r"(?:src|href|srcset|data)=[\"']?((?:https?:)?//[^\"'\s>]+)",
        re.IGNORECASE,
    )
    style = re.compile(r"(?:url\(\s*|@import\s+)[\"']?((?:https?:)?//[^\"')]+)")
    found = []
    for kind, pattern in (("html", tag), ("css", style)):
        for file in sorted(html.rglob(f"*.{kind}")):
            addresses = pattern.findall(file.read_text(encoding="utf-8"))
            found += [f"{file.relative_to(html)}: {address}" for address in addresses]
    return found


def mend_source_links(html: Path) -> None:
    """Let the pages of source code link to the API reference.

    Sphinx names all objects of a module after the package that documents the first of them.
    """
    anchors = {page: anchors_of(page) for page in html.glob("api/*.html")}

    def mended(link: re.Match[str]) -> str:
        known, name = anchors.get(html / "api" / Path(link[1]).name, set()), link[2]
        same = [f"{package}{name.removeprefix(mine)}" for mine in PUBLIC for package in PUBLIC if name.startswith(mine)]
        return f'href="{link[1]}#{next((each for each in [name, *same] if each in known), name)}"'

    for page in html.glob("_modules/**/*.html"):
        text = page.read_text(encoding="utf-8")
        page.write_text(re.sub(r'href="([./]+/api/\w+\.html)#([\w.]+)"', mended, text))


def anchors_of(page: Path) -> set[str]:
    """What a link to a page may end in."""
    return set(re.findall(r'\b(?:id|name)="([^"]+)"', page.read_text(encoding="utf-8")))


def broken_links(html: Path) -> list[str]:
    """Links within the site to a page, a file or a heading that is not there."""
    anchors = {page: anchors_of(page) for page in html.rglob("*.html") if "_static" not in page.parts}
    found = []
    for page in sorted(anchors):
        for link in sorted(set(re.findall(r'\b(?:href|src)="([^"]*)"', page.read_text(encoding="utf-8")))):
            if re.match(r"[a-z]+:|//", link):
                continue
            path, _, anchor = unquote(unescape(link)).partition("#")
            target = (page.parent / path.partition("?")[0]).resolve() if path else page
            if not target.exists() or (anchor and anchor not in anchors.get(target, {anchor})):
                found.append(f"{page.relative_to(html)}: {link}")
    return found


def build(fresh: bool, check: bool) -> None:
    """Make the pages, run Sphinx with warnings as errors, and look for broken links and requests to other servers."""
    stage_pages()
    write_api()
    write_examples(fresh, check)
    subprocess.run(
        [
            sys.executable,
            "-m",
            "sphinx",
            "-W",
            "--keep-going",
            "-q",
            "-b",
            "html",
            "-d",
            BUILD / "doctrees",
            SOURCE,
            HTML,
        ],
        check=True,
    )
    if found := external_resources(HTML):
        raise SystemExit("the site would fetch from other servers:\n" + "\n".join(found))
    mend_source_links(HTML)
    if found := broken_links(HTML):
        raise SystemExit("links of the site that lead nowhere:\n" + "\n".join(found))
    print(f"the site is in {(HTML / 'index.html').relative_to(ROOT)}")


def main() -> None:
    """Parse the options and build."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", action="store_true", help="build, then serve it on this machine")
    parser.add_argument("--check", action="store_true", help="run no example, and leave their output out")
    parser.add_argument("--fresh", action="store_true", help="run all examples again")
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    build(options.fresh, options.check)
    if options.serve:
        print(f"serving http://127.0.0.1:{options.port} (Ctrl-C ends it)")
        handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=HTML)
        http.server.ThreadingHTTPServer(("127.0.0.1", options.port), handler).serve_forever()


if __name__ == "__main__":
    main()
