"""Which ways of estimating a gradient are compared: estimators, schemes and fan-outs, each with each."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from cvgnn.config import TrainConfig
from cvgnn.errors import CvgnnError, require, unknown_name
from cvgnn.limits import check_fan_out
from cvgnn.nn import ESTIMATORS, ControlVariate, Estimator, SampledSum
from cvgnn.sampling import SCHEMES, BatchLoader, NeighborSampler
from cvgnn.training import Trainer


@final
@dataclass(frozen=True, kw_only=True)
class Variant:
    """A way to estimate.

    Args:
        estimator: `cv`, `ns` or `exact`.
        scheme: how neighbors are drawn.
        fan_out: as `NeighborSampler` takes it; all neighbors for `exact`.
    """

    estimator: str
    scheme: str
    fan_out: tuple[int, ...]

    @property
    def drawn(self) -> str:
        """The fan-out in words: all hops', or each one's with the batch's own first."""
        return "all" if set(self.fan_out) == {-1} else "-".join("all" if D == -1 else str(D) for D in self.fan_out)

    @property
    def label(self) -> str:
        """For legends: `cv 2`, `ns 5 (paper)`."""
        named = "" if self.scheme == "without-replacement" else f" ({self.scheme})"
        return self.estimator if self.estimator == "exact" else f"{self.estimator} {self.drawn}{named}"

    def loader(self, trainer: Trainer, *, batch_size: int, seed: int) -> BatchLoader:
        """Batches for this way to estimate, of the training nodes and in the mode of a trainer."""
        theirs = trainer.loader
        sampler = NeighborSampler(
            theirs.sampler.propagation,
            num_neighbors=self.fan_out[0] if len(self.fan_out) == 1 else self.fan_out,
            num_layers=trainer.model.num_layers,
            scheme=self.scheme,  # type: ignore[arg-type]
            control=self.estimator == "cv",
            seed=seed,
        )
        return BatchLoader(theirs.train_ids, sampler, batch_size=batch_size, mode=theirs.mode, seed=seed)

    def aggregator(self, trainer: Trainer) -> Estimator:
        """The estimator; the control variate's is the trainer's own, with its histories as they are."""
        return trainer.estimator if self.estimator == "cv" else SampledSum(trainer.estimator.features)


def variants(
    config: TrainConfig, estimators: Sequence[str], schemes: Sequence[str], fan_outs: Sequence[Sequence[int]]
) -> list[Variant]:
    """Each estimator with each scheme and each fan-out; `exact`, which draws nothing, once.

    Args:
        config: gives the scheme and the fan-out where none is listed.
        estimators: names.
        schemes: names, or empty.
        fan_outs: each one number, or one for each hop, the batch's own first; or empty.
    """
    require(len(estimators) > 0, f"name at least one estimator: {', '.join(ESTIMATORS)}")
    for name in estimators:
        if name not in ESTIMATORS:
            raise unknown_name("estimator", name, ESTIMATORS)
    for name in schemes:
        if name not in SCHEMES:
            raise unknown_name("scheme", name, SCHEMES)
    hops = config.hops
    for fan_out in fan_outs:
        require(
            len(fan_out) in (1, hops),
            f"fan-out has {len(fan_out)} numbers, {tuple(fan_out)}, but {config.layers} layers sample at {hops} hops: "
            "give one number, or one for each hop, joined by commas",
        )
    found: dict[Variant, None] = {}
    drawn = itertools.product(schemes or [config.scheme], fan_outs or [config.num_neighbors], estimators)
    for scheme, fan_out, estimator in drawn:
        try:
            for D in fan_out:
                check_fan_out(D, scheme)
        except CvgnnError as error:
            raise CvgnnError(str(error).replace("num_neighbors", "--fan-outs") if fan_outs else str(error)) from None
        exact = estimator == "exact"
        found[
            Variant(
                estimator=estimator,
                scheme="without-replacement" if exact else scheme,
                fan_out=(-1,) if exact else tuple(fan_out),
            )
        ] = None
    return list(found)


def require_histories(trainer: Trainer, chosen: Sequence[Variant]) -> None:
    """Refuse to measure the control variate where training has kept no histories."""
    require(
        isinstance(trainer.estimator, ControlVariate) or all(v.estimator != "cv" for v in chosen),
        "cv cannot be measured: training without it has left no histories; train with --estimator cv, or measure "
        "--estimators ns exact",
    )
