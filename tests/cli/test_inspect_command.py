"""`cvgnn inspect`: what a graph holds, and what looks suspicious."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cvgnn.cli.main import main


def test_what_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "".join(f"{i},{i % 5},{'' if i == 3 else 'ab'[i % 2]},{'xy'[i % 2]},train\n" for i in range(20))
    last = "20,1,a,z,val\n"
    (tmp_path / "nodes.csv").write_text(f"node_id,f,copy,label,split\n{rows}{last}")
    (tmp_path / "edges.csv").write_text("src,dst\n0,1\n1,2\n3,4\n")
    assert main(["inspect", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    for text in (
        "21 nodes, 3 edges",
        "degrees: 0 to 2, median 0",
        "components: 18, the largest with 3 nodes",
        "copy    category  one-hot: 2 values; 5.0 % missing, with an indicator",
        "1 classes have no training node: z",
        "16 of 21 nodes have no edge",
        "nodes have the same features as another node",
        "the test split is empty",
    ):
        assert text in out
    assert "column 'node_id' is the id" in err
    assert "what it becomes" not in err
    assert "training node" not in err


def test_other_forms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "g.npz", edge_index=[[0, 1], [1, 2]], x=np.eye(3), y=[0, 1, 0])
    assert main(["inspect", str(tmp_path / "g.npz")]) == 0
    assert "columns" not in capsys.readouterr().out
    assert main(["inspect", str(tmp_path / "none")]) == 2
