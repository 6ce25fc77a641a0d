"""The slow, literal twin of the optimizers in float64 NumPy: the text that the fast ones are tested against.

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

from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from cvgnn.errors import unknown_name

Array: TypeAlias = NDArray[np.float64]


@final
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

    def __init__(
        self,
        name: str,
        form: str,
        *,
        lr: float,
        beta1: float = 0.9,
        beta2: float = 0.999,
        nu_min: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        updates = {
            ("sgd", "paper"): self._paper_sgd,
            ("heavy-ball", "paper"): self._paper_heavy_ball,
            ("adam", "paper"): self._paper_adam,
            ("amsgrad", "paper"): self._paper_amsgrad,
            ("adagrad", "paper"): self._paper_adagrad,
            ("sgd", "torch"): self._torch_sgd,
            ("heavy-ball", "torch"): self._torch_heavy_ball,
            ("adam", "torch"): self._torch_adam,
            ("amsgrad", "torch"): self._torch_amsgrad,
            ("adagrad", "torch"): self._torch_adagrad,
        }
        if (name, form) not in updates:
            raise unknown_name("optimizer and form", f"{name}, {form}", (", ".join(key) for key in updates))
        self._update = updates[name, form]
        self.lr = lr
        self.beta1 = beta1
        self.beta2 = beta2
        self.nu_min = nu_min
        self.weight_decay = weight_decay
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

    def _paper_sgd(self, j: int, W: Array, G: Array) -> Array:
        self.M[j] = G
        self.V[j] = np.ones_like(W)
        return W - self.lr * self.M[j] / np.sqrt(self.V[j])

    def _paper_heavy_ball(self, j: int, W: Array, G: Array) -> Array:
        self.M[j] = self.beta1 * self.M[j] + (1 - self.beta1) * G
        self.V[j] = np.ones_like(W)
        return W - self.lr * self.M[j] / np.sqrt(self.V[j])

    def _paper_adam(self, j: int, W: Array, G: Array) -> Array:
        self.M[j] = self.beta1 * self.M[j] + (1 - self.beta1) * G
        self.V[j] = self.beta2 * self.V[j] + (1 - self.beta2) * G**2
        return W - self.lr * self.M[j] / np.sqrt(np.maximum(self.V[j], self.nu_min**2))

    def _paper_amsgrad(self, j: int, W: Array, G: Array) -> Array:
        self.M[j] = self.beta1 * self.M[j] + (1 - self.beta1) * G
        self._V_hat[j] = self.beta2 * self._V_hat[j] + (1 - self.beta2) * G**2
        self.V[j] = np.maximum(self.V[j], self._V_hat[j])
        return W - self.lr * self.M[j] / np.sqrt(np.maximum(self.V[j], self.nu_min**2))

    def _paper_adagrad(self, j: int, W: Array, G: Array) -> Array:
        self.M[j] = self.beta1 * self.M[j] + (1 - self.beta1) * G
        self._S[j] = self._S[j] + G**2
        self.V[j] = self._S[j] / self.t
        return W - self.lr * self.M[j] / np.sqrt(self.V[j] + self.nu_min**2)

    def _torch_sgd(self, j: int, W: Array, G: Array) -> Array:
        self.M[j] = G
        self.V[j] = np.ones_like(W)
        return W - self.lr * self.M[j]

    def _torch_heavy_ball(self, j: int, W: Array, G: Array) -> Array:
        # The first buffer is the whole gradient: dampening acts from the second step on.
        self.M[j] = G if self.t == 1 else self.beta1 * self.M[j] + (1 - self.beta1) * G
        self.V[j] = np.ones_like(W)
        return W - self.lr * self.M[j]

    def _torch_adam(self, j: int, W: Array, G: Array) -> Array:
        self.M[j] = self.beta1 * self.M[j] + (1 - self.beta1) * G
        self.V[j] = self.beta2 * self.V[j] + (1 - self.beta2) * G**2
        return self._torch_bias_corrected(W, self.M[j], self.V[j])

    def _torch_amsgrad(self, j: int, W: Array, G: Array) -> Array:
        self.M[j] = self.beta1 * self.M[j] + (1 - self.beta1) * G
        self._V_hat[j] = self.beta2 * self._V_hat[j] + (1 - self.beta2) * G**2
        # The maximum is of the averages before their correction; the correction of the current t is then divided out.
        self.V[j] = np.maximum(self.V[j], self._V_hat[j])
        return self._torch_bias_corrected(W, self.M[j], self.V[j])

    def _torch_adagrad(self, j: int, W: Array, G: Array) -> Array:
        self.M[j] = G
        self.V[j] = self.V[j] + G**2
        return W - self.lr * self.M[j] / (np.sqrt(self.V[j]) + self.nu_min)

    def _torch_bias_corrected(self, W: Array, M: Array, V: Array) -> Array:
        M_corrected = M / (1 - self.beta1**self.t)
        V_corrected = V / (1 - self.beta2**self.t)
        return W - self.lr * M_corrected / (np.sqrt(V_corrected) + self.nu_min)
