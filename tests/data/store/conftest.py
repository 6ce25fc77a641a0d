"""Stores to spoil: a fresh copy for every test."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from cvgnn.data.store import write_store
from tests.data.store.cases import make_graph


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stores")
    names = np.array([f"node {v}" for v in range(30)])
    write_store(make_graph(node_names=names, class_names=("a", "b", "c")), folder / "dense", propagate="symmetric")
    write_store(make_graph(sparse=True, weighted=True), folder / "sparse", propagate="random-walk")
    return folder


@pytest.fixture
def dense(templates: Path, tmp_path: Path) -> Path:
    """30 nodes with names, 7 features, 3 classes with names, symmetric `P X`."""
    return Path(shutil.copytree(templates / "dense", tmp_path / "dense"))


@pytest.fixture
def sparse(templates: Path, tmp_path: Path) -> Path:
    """30 nodes, weighted edges, 7 sparse features, 3 classes, random-walk `P X`."""
    return Path(shutil.copytree(templates / "sparse", tmp_path / "sparse"))
