"""Choose the torch of constraints.txt: pinned as it is, oldest: the bound of pyproject.toml, newest: any above it.

python tools/torch_constraint.py pinned|oldest|newest
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent


def main(which: str) -> None:
    """Rewrite the line of torch in constraints.txt."""
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    bound = next(d for d in dependencies if d.startswith("torch>="))
    path = ROOT / "constraints.txt"
    text = path.read_text()
    pin = re.search(r"^torch==.*$", text, flags=re.MULTILINE)
    if pin is None:
        raise SystemExit("constraints.txt has no line torch==VERSION")
    line = {"pinned": pin.group(), "oldest": bound.replace(">=", "=="), "newest": bound}[which]
    path.write_text(text.replace(pin.group(), line))
    print(f"constraints.txt: {line}")


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in ("pinned", "oldest", "newest"):
        raise SystemExit(__doc__)
    main(sys.argv[1])
