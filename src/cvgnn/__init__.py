"""cvgnn: fast training of graph neural networks on large graphs.

`__init__.pyi` lists the names. They are imported on first use: `import cvgnn` takes milliseconds, and the first name
that needs torch imports it.
"""

import os
import sys

from cvgnn._lazy import lazy_names

# While torch's OpenMP threads wait they spin by default, which makes small operations up to 100 times slower when
# another process is busy (docs/design.md). OpenMP reads these variables when torch is imported.
_OPENMP = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}
if "torch" not in sys.modules:
    for _name, _value in _OPENMP.items():
        os.environ.setdefault(_name, _value)
elif any(_name not in os.environ for _name in _OPENMP):
    import logging

    logging.getLogger(__name__).warning(
        "torch was imported before cvgnn, so its threads spin while they wait, which is slow on a busy machine; import "
        "cvgnn first, or set %s before Python starts",
        " ".join(f"{_name}={_value}" for _name, _value in _OPENMP.items()),
    )

__getattr__, __all__ = lazy_names(__name__)


def __dir__() -> list[str]:
    return sorted(__all__)
