"""Who is at a trial, and who is gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from cvgnn.errors import CvgnnError
from cvgnn.sweeps.owners import at_work, forget, is_gone


def files(out: Path) -> list[str]:
    return [path.name for path in (out / "searching").iterdir()]


def test_a_search_is_known_while_it_is_at_work(tmp_path: Path) -> None:
    with at_work(tmp_path) as name:
        assert files(tmp_path) == [name]
        assert not is_gone(tmp_path, name)
        assert not is_gone(tmp_path / "other", name)  # not ours to judge
    assert files(tmp_path) == []


def test_a_search_that_has_ended_without_a_word_is_gone(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), at_work(tmp_path) as name:
        raise ZeroDivisionError
    assert files(tmp_path) == [name]
    assert is_gone(tmp_path, name)
    forget(tmp_path, name)
    assert files(tmp_path) == []
    assert not is_gone(tmp_path, name)


def test_a_name_from_elsewhere_leads_nowhere(tmp_path: Path) -> None:
    with at_work(tmp_path):
        (tmp_path / "victim").write_text("x")
        for name in ("../victim", "", "0" * 17, str(tmp_path / "victim")):
            assert not is_gone(tmp_path, name)


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("x")
    with (
        pytest.raises(CvgnnError, match=r"cannot use .*out as output folder: .*; choose another --out"),
        at_work(tmp_path / "out"),
    ):
        pass
