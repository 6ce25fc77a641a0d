"""The four ways to draw neighbors, by name.

| scheme | draw | weight of a drawn `u` | unbiased |
|---|---|---|---|
| `without-replacement` | min(D, deg) distinct neighbors | deg / min(D, deg) · P[v,u] | yes |
| `with-replacement` | D draws, multiplicity c counted | c · deg / D · P[v,u] | yes |
| `paper` | D draws, duplicates removed | deg / D · P[v,u] | no |
| `released` | as `paper` | (deg + 1) / D · P[v,u], the self loop too | no |

The self loop keeps its exact weight `P[v,v]` in all but `released`, which reproduces the published code. A fan-out of
-1 takes every neighbor with its exact weight, whatever the scheme.
"""

from __future__ import annotations

from typing import Literal, get_args

from cvgnn.errors import require_known

Scheme = Literal["without-replacement", "with-replacement", "paper", "released"]
SCHEMES: tuple[str, ...] = get_args(Scheme)


def scheme_code(scheme: str) -> int:
    """The number that the compiled kernels know a scheme by: its place in `SCHEMES`.

    >>> scheme_code("paper")
    2
    """
    require_known("scheme", scheme, SCHEMES)
    return SCHEMES.index(scheme)
