"""The slow, literal twin of the optimizers in float64 NumPy, which the fast ones are tested against.

Legend, the paper's letters (Algorithm 1, Table 1):

    t            the iteration, from 1
    W, G         the parameters W_t and their stochastic gradients G_t, weight decay included
    M, V         the first and the second moment M_t, V_t
    V_hat        AMSGrad's exponential average, of which V_t is the running maximum
    S            the sum of all G_i^2 so far
    nu_min       Assumption 2's bound in the paper's form, `eps` in torch's

The torch form is written from torch's documentation of `SGD`, `Adam` and `Adagrad`, not from its code.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from cvgnn.errors import require_known

Array: TypeAlias = NDArray[np.float64]

NAMES = ("sgd", "heavy-ball", "adam", "amsgrad", "adagrad")
FORMS = ("paper", "torch")


@final
@dataclass
class ReferenceOptimizer:
    """One of the five optimizers in one of the two forms, one parameter and one line of the paper at a time.

    Args:
        name: `sgd`, `heavy-ball`, `adam`, `amsgrad` or `adagrad`.
        form: `paper` or `torch`.
        lr: the learning rate alpha.
        beta1: the momentum's decay rate; `sgd` and torch's `adagrad` have none.
        beta2: the decay rate of `adam` and `amsgrad`.
        nu_min: the bound of Assumption 2; in torch's form `eps`.
        weight_decay: the factor of the L2 term.

    >>> optimizer = ReferenceOptimizer("heavy-ball", "paper", lr=1.0, beta1=0.75)
    >>> W = optimizer.step([np.zeros(1)], [np.ones(1)])  # M_1 = 0.25
    >>> optimizer.step(W, [np.ones(1)])  # M_2 = 0.4375
    [array([-0.6875])]
    """

    name: str
    form: str
    _: KW_ONLY
    lr: float
    beta1: float = 0.9
    beta2: float = 0.999
    nu_min: float = 1e-8
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        known = [f"{name}, {form}" for form in FORMS for name in NAMES]
        require_known("optimizer and form", f"{self.name}, {self.form}", known)
        self.t = 0
        self.M: list[Array] = []
        self.V: list[Array] = []
        self._V_hat: list[Array] = []
        self._S: list[Array] = []

    def step(self, W: list[Array], G: list[Array]) -> list[Array]:
        """`W_{t+1}` from `W_t` and the gradients there.

        Args:
            W: the parameters, any shapes.
            G: their gradients, of the same shapes, without weight decay.

        Returns:
            New arrays of the same shapes; `M` and `V` are those of this step.
        """
        if self.t == 0:
            self.M, self.V, self._V_hat, self._S = ([np.zeros_like(w) for w in W] for _ in range(4))
        self.t += 1
        return [self._update(j, W[j], G[j] + self.weight_decay * W[j]) for j in range(len(W))]

    def _update(self, j: int, W: Array, G: Array) -> Array:
        self.M[j] = self._first_moment(self.M[j], G)
        self.V[j] = self._second_moment(j, G)
        M, V, nu_min = self.M[j], self.V[j], self.nu_min
        if self.name in ("sgd", "heavy-ball"):
            return W - self.lr * M / np.sqrt(V)
        if self.name == "adagrad":
            return W - self.lr * M / (np.sqrt(V + nu_min**2) if self.form == "paper" else np.sqrt(V) + nu_min)
        if self.form == "paper":
            return W - self.lr * M / np.sqrt(np.maximum(V, nu_min**2))
        # torch's bias correction; AMSGrad's maximum is of the averages before it, and the correction is that of t.
        M_corrected = M / (1 - self.beta1**self.t)
        V_corrected = V / (1 - self.beta2**self.t)
        return W - self.lr * M_corrected / (np.sqrt(V_corrected) + nu_min)

    def _first_moment(self, M: Array, G: Array) -> Array:
        """M_t from M_{t-1}."""
        if self.name == "sgd" or (self.name, self.form) == ("adagrad", "torch"):
            return G
        # torch's first momentum buffer is the complete gradient: dampening acts from the second step on.
        if (self.name, self.form, self.t) == ("heavy-ball", "torch", 1):
            return G
        return self.beta1 * M + (1 - self.beta1) * G

    def _second_moment(self, j: int, G: Array) -> Array:
        """V_t (Table 1)."""
        if self.name in ("sgd", "heavy-ball"):
            return np.ones_like(G)
        if self.name == "adagrad":
            self._S[j] = self._S[j] + G**2
            return self._S[j] / self.t if self.form == "paper" else self._S[j]
        self._V_hat[j] = self.beta2 * self._V_hat[j] + (1 - self.beta2) * G**2
        return np.maximum(self.V[j], self._V_hat[j]) if self.name == "amsgrad" else self._V_hat[j]
