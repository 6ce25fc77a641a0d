"""The one table of variants: five optimizers, two forms, and their first two steps worked out by hand."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from cvgnn.optim import FORMS, OPTIMIZERS, make_optimizer
from cvgnn.reference.optimizers import ReferenceOptimizer

VARIANTS = [(name, form) for form in FORMS for name in OPTIMIZERS]
SHAPES = [(4, 3), (3,), (), (2, 1, 2)]

# The optional numbers that each variant has a use for.
USES = {
    ("sgd", "paper"): (),
    ("heavy-ball", "paper"): ("beta1",),
    ("adam", "paper"): ("beta1", "beta2", "nu_min"),
    ("amsgrad", "paper"): ("beta1", "beta2", "nu_min"),
    ("adagrad", "paper"): ("beta1", "nu_min"),
    ("sgd", "torch"): (),
    ("heavy-ball", "torch"): ("beta1",),
    ("adam", "torch"): ("beta1", "beta2", "nu_min"),
    ("amsgrad", "torch"): ("beta1", "beta2", "nu_min"),
    ("adagrad", "torch"): ("nu_min",),
}

# W_1 = (1, 1), G_1 = (2, 2), G_2 = (2.75, 0), lr = 0.1, beta1 = 0.5, beta2 = 0.75, nu_min = 1e-16: (W_2, W_3).
# By hand, first entry first:
#   moments        M_1 = 1, 1            M_2 = 1.875, 0.5          averages of G^2 = 1, 1 and 2.640625, 0.75
#   paper adam     V_2 = 1.625^2, 0.75   amsgrad V_2 = 1.625^2, 1  adagrad V_1 = 4, 4; V_2 = 5.78125, 2
#   torch          heavy-ball M_1 = 2, 2; M_2 = 2.375, 1           corrections 0.5, 0.25, then 0.75, 0.4375
#   torch adam     V_2 / 0.4375 = 6.0357.., 1.7142..               amsgrad 6.0357.., 2.2857..; adagrad sum 11.5625, 4
HAND = {
    ("sgd", "paper"): ([0.8, 0.8], [0.525, 0.8]),
    ("heavy-ball", "paper"): ([0.9, 0.9], [0.7125, 0.85]),
    ("adam", "paper"): ([0.9, 0.9], [0.7846153846153846, 0.8422649730810374]),
    ("amsgrad", "paper"): ([0.9, 0.9], [0.7846153846153846, 0.85]),
    ("adagrad", "paper"): ([0.95, 0.95], [0.8720187132634944, 0.9146446609406725]),
    ("sgd", "torch"): ([0.8, 0.8], [0.525, 0.8]),
    ("heavy-ball", "torch"): ([0.8, 0.8], [0.5625, 0.7]),
    ("adam", "torch"): ([0.9, 0.9], [0.7982403341898234, 0.8490824922782685]),
    ("amsgrad", "torch"): ([0.9, 0.9], [0.7982403341898234, 0.8559041448155902]),
    ("adagrad", "torch"): ([0.9, 0.9], [0.8191263915696811, 0.9]),
}
HAND_NUMBERS = {"beta1": 0.5, "beta2": 0.75, "nu_min": 1e-16}
HAND_GRADIENTS = ([2.0, 2.0], [2.75, 0.0])


STATE_NAMES = {  # the names of M and V in the state
    ("heavy-ball", "paper"): ("M", None),
    ("adam", "paper"): ("M", "V"),
    ("amsgrad", "paper"): ("M", "V"),
    ("adagrad", "paper"): ("M", "V"),
    ("heavy-ball", "torch"): ("M", None),
    ("adam", "torch"): ("M", "V"),
    ("amsgrad", "torch"): ("M", "V"),
    ("adagrad", "torch"): (None, "V"),
}


def used(name: str, form: str, **numbers: float) -> dict[str, float]:
    """Those of the numbers that the variant has a use for."""
    return {key: value for key, value in numbers.items() if key in USES[name, form]}


def pair(name: str, form: str, W: list[Tensor], *, lr: float, weight_decay: float, **numbers: float):
    """The fast optimizer over `W` and its reference, with the same numbers."""
    numbers = used(name, form, **numbers)
    fast = make_optimizer(name, W, form=form, lr=lr, weight_decay=weight_decay, **numbers)
    return fast, ReferenceOptimizer(name, form, lr=lr, weight_decay=weight_decay, **numbers)


def parameters(shapes=SHAPES, *, dtype: torch.dtype = torch.float64, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, dtype=dtype, generator=generator).requires_grad_() for shape in shapes]


def gradients(W: list[Tensor], seed: int, scale: float = 1.0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1000 + seed)
    return [scale * torch.randn(w.shape, dtype=w.dtype, generator=generator) for w in W]


def set_gradients(W: list[Tensor], seed: int, scale: float = 1.0) -> list[Tensor]:
    """New seeded gradients in `w.grad`; returns them."""
    G = gradients(W, seed, scale)
    for w, g in zip(W, G, strict=True):
        w.grad = g
    return G


def arrays(tensors) -> list[np.ndarray]:
    return [t.detach().numpy().astype(np.float64) for t in tensors]
