"""The lock files of searches: which are alive, which are dead."""

from __future__ import annotations

from pathlib import Path

import pytest

from cvgnn.errors import CvgnnError
from cvgnn.lab.search.search_loop import dead_owners, register, unregister


def files(out: Path) -> list[str]:
    return [path.name for path in (out / "searching").iterdir()]


def test_a_search_is_known_while_it_is_register(tmp_path: Path) -> None:
    with register(tmp_path) as name:
        assert files(tmp_path) == [name]
        assert dead_owners(tmp_path) == set()
        assert dead_owners(tmp_path / "other") == set()  # a folder without searches
    assert files(tmp_path) == []


def test_a_search_that_has_ended_without_a_word_is_dead(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), register(tmp_path) as name:
        raise ZeroDivisionError
    assert files(tmp_path) == [name]
    assert dead_owners(tmp_path) == {name}
    unregister(tmp_path, name)
    assert files(tmp_path) == []
    assert dead_owners(tmp_path) == set()


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("x")
    with (
        pytest.raises(CvgnnError, match=r"cannot use .*out as output folder: .*; choose another --out"),
        register(tmp_path / "out"),
    ):
        pass
