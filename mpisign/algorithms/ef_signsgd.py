"""signSGD with error feedback."""

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from .. import kernels
from ..collectives.scaled_sign_mean import ScaledSignMean
from .base import Params
from .flat import FlatOptimizer
from .reports import Report


class EFSignSGD(FlatOptimizer):
    """signSGD with error feedback (Karimireddy, Rebjock, Stich, Jaggi 2019, Algorithm 1), distributed.

        worker n:  p = ηg + e;  sends sign(p), and ‖p‖₁/d of each parameter    1 bit a coordinate up
        server:    Δ = mean of scale·sign(p)                                  32 bits a coordinate back
        worker:    e ← p − scale·sign(p);  x ← (1−ηλ)x − Δ

    What signs lose is kept and sent later: at any time the sum of a worker's outputs and its e is the sum of its ηg, up to
    rounding. e is in units of steps (η is already in it), so a new learning rate does not rescale what is owed. d is the
    parameter's own number of coordinates. A coordinate of 0 counts as +, which e takes back at the next step.

    The mean needs every worker's scales: ballots are gathered at the server, and float32 comes back; only the way up is
    compressed. A worker without a gradient for a parameter, or with one that is not finite, abstains and keeps its e.

    Args:
        params: parameters or groups; lr and weight_decay may differ between groups.
        lr: η >= 0, on the scale of SGD's without momentum.
        weight_decay: λ >= 0, decoupled: it never enters e.
        comm: a mpisign Comm or an mpi4py communicator; COMM_WORLD by default.

    Raises:
        ParameterError, DisagreementError: see `DistributedOptimizer`.
    """

    default_lr: ClassVar[float] = 0.1
    kept: ClassVar[str] = "residual"

    def __init__(self, params: Params, lr: float = default_lr, weight_decay: float = 0.0, *, comm: Any = None) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay}, comm)

    def connect(self) -> None:
        """Build the mean of scaled signs."""
        self.ballot = torch.zeros(self.layout.message, dtype=torch.uint64)
        self._mean = ScaledSignMean(self.comm, self.layout, len(self.layout.numels), self.watch)
        self._moved = torch.zeros(64 * self.layout.words)

    @property
    def bytes_up(self) -> int:
        """Bytes of a ballot and its scales."""
        return self._mean.nbytes_up

    def update(self) -> Report:
        """Pack, average, descend."""
        with self.watch("pack"):
            finite, scales = self._vote(self.gradients())
        means = self._mean(self.ballot, scales)
        with self.watch("apply"):
            for index, mean in enumerate(means):
                if mean is not None:
                    self.move(index, mean, 1.0)
        return Report(self._mean.voters, finite=finite)

    def _vote(self, gradients: list[Tensor | None]) -> tuple[bool, kernels.Floats]:
        """Write the ballot of p and the new residual; return whether all was finite, and float32[P], the scales."""
        moved, ones = self._moved.copy_(self.memory), np.ones(len(gradients), np.float32)
        rates = self.each(lambda group: float(group["lr"]))
        finite = kernels.sign_ballot(self.layout, gradients, moved, ones, rates, "plus", 0, self.ballot)
        vectors = [
            part if gradient is not None else None for part, gradient in zip(self.parts(moved), gradients, strict=True)
        ]
        with np.errstate(over="ignore"):
            scales = (kernels.l1_norms(self.layout, vectors) / np.maximum(self.layout.numels, 1)).astype(np.float32)
        if not finite or not np.isfinite(scales).all():
            self.ballot[: self.layout.header] = 0
            return False, np.zeros_like(scales)
        kernels.residuals(self.layout, moved, scales, self.ballot, self.memory)
        for index, gradient in enumerate(gradients):
            if gradient is not None and not self.remembers(index):
                self.remember(index)
        return True, scales
