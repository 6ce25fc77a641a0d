"""What a release states in several places is the same everywhere, and what the public CI runs exists."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import cvgnn

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_citation_and_changelog_name_the_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == cvgnn.__version__
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert newest is not None
    assert newest.group(1) in (cvgnn.__version__, "Unreleased")  # the next version collects its entries there


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.name)
def test_workflows_run_what_exists(path: Path) -> None:
    rules = re.findall(r"^([a-z][a-z -]*):(?!=)", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    targets = {name for rule in rules for name in rule.split()}
    jobs = yaml.safe_load(path.read_text())["jobs"]
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert commands
    for command in commands:
        for target in re.findall(r"^make (.+)$", command, flags=re.MULTILINE):
            assert set(target.split()) <= targets, command
        for script in re.findall(r"\btools/\S+", command):
            assert (ROOT / script).is_file(), command


def test_public_ci_covers_every_python_that_the_package_promises() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    matrix = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]["test"]["strategy"][
        "matrix"
    ]
    promised = re.findall(r"Python :: (3\.\d+)", " ".join(project["classifiers"]))
    assert promised == matrix["python"]
    assert project["requires-python"] == f">={promised[0]}"
