"""Stochastic sign descent with momentum."""

from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from .. import kernels, seeding
from ..collectives.scaled_sign_mean import ScaledSignMean
from ..collectives.sign_sum import SignSum
from ..errors import ParameterError
from .base import Params
from .flat import FlatOptimizer
from .reports import Report

Norm = Literal["none", "carry"]


class SSDM(FlatOptimizer):
    """Stochastic sign descent with momentum (Safaryan, Richtárik 2021, "Stochastic Sign Descent Methods").

        worker n:  m ← βm + (1−β)g, from m = its first g;  s_n = s̃ign(m)      1 bit a coordinate up
        server:    s = Σ s_n, integers in −M … M                              ceil(log2(n+1)) bits back
        worker:    x ← (1−γλ)x − (γ/M)·s

    s̃ign(m)_i is +1 with probability ½ + ½·m_i/‖m‖, else −1, so that E[‖m‖·s̃ign m] = m; ‖m‖ is that of all parameters
    together that have a gradient in this step. M is the number of workers that voted on the parameter, n of all ranks.
    s̃ign(0) = 0: a worker whose whole m is 0 abstains, as does one whose gradient is not finite.

    **It converges for homogeneous data only**: where every worker draws from the same data (the authors' correction of
    2026). Where data differ it goes to a point with Σ ∇f_n/‖∇f_n‖ = 0, for quadratics the geometric median of the
    workers' optima instead of their mean.

    norm="carry" is a remedy that is not in the paper: each ballot also carries ‖m_n‖ (32 bits more, in a word of its own,
    no message more), and the step is γ·Σ‖m_n‖s_n/M, which is unbiased for the mean of the m_n whatever the data. This
    sum needs every ballot with its norm: the server gathers them all and sends float32 back, 32 bits a coordinate. A
    worker whose m is 0 then counts, with norm 0. lr is on the scale of gradients there, and the noise grows with ‖m_n‖.

    Args:
        params: parameters or groups; lr, momentum and weight_decay may differ between groups.
        lr: γ >= 0. By the theorem γ ~ K^(−3/4) for K steps. The drift of a coordinate is only γ·m_i/‖m‖, about γ/√d.
        momentum: β in [0, 1). By the theorem 1 − K^(−1/2).
        weight_decay: λ >= 0, decoupled.
        norm: "none", the paper's, or "carry".
        seed: names the random signs.
        comm: a mpisign Comm or an mpi4py communicator; COMM_WORLD by default.

    Raises:
        ParameterError, DisagreementError: see `DistributedOptimizer`.
    """

    default_lr: ClassVar[float] = 1e-2
    kept: ClassVar[str] = "momentum"

    def __init__(
        self,
        params: Params,
        lr: float = default_lr,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        *,
        norm: Norm = "none",
        seed: int = 0,
        comm: Any = None,
    ) -> None:
        self.norm, self.seed = norm, seed
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "norm": norm}
        super().__init__(params, defaults, comm)

    def check_group(self, group: dict[str, Any]) -> None:
        """Raise ParameterError where a group's hyperparameters can't be used."""
        super().check_group(group)
        if self.norm not in get_args(Norm) or group["norm"] != self.norm:
            raise ParameterError(
                f"norm is none or carry, the same for all groups and for a state that is loaded; "
                f"got norm={self.norm!r} and a group's norm={group['norm']!r}"
            )

    def connect(self) -> None:
        """Build the sum of signs, or of scaled ones."""
        self.ballot = torch.zeros(self.layout.message, dtype=torch.uint64)
        self._sum = SignSum(self.comm, self.layout, self.watch)
        self._mean = ScaledSignMean(self.comm, self.layout, 1, self.watch)
        self._key = seeding.key(self.seed, self.comm.rank, "stochastic signs")
        self._parts = self.parts(self.memory)

    @property
    def bytes_up(self) -> int:
        """Bytes of a ballot, and of its norm where that is carried."""
        return self._mean.nbytes_up if self.norm == "carry" else self.ballot.nbytes

    def update(self) -> Report:
        """Pack, sum, descend."""
        with self.watch("pack"):
            gradients = self.gradients()
            finite = self._accumulate(gradients)
            size = self._vote(gradients, finite)
        if self.norm == "carry":
            directions, counts, voters = self._mean(self.ballot, size), None, self._mean.voters
        else:
            directions, counts, voters = self._sum(self.ballot), self._sum.counts, self._sum.voters
        with self.watch("apply"):
            for index, (direction, group) in enumerate(zip(directions, self.owners, strict=True)):
                if direction is not None:
                    self.move(index, direction, float(group["lr"]) / (1 if counts is None else int(counts[index])))
        return Report(voters, finite=finite)

    def _accumulate(self, gradients: list[Tensor | None]) -> bool:
        """m ← βm + (1−β)g, or g where it is the first, and the ballot of plain signs; tell whether all were finite."""
        old = np.array([self.remembers(index) for index in range(len(gradients))], np.bool_)
        betas = np.where(old, self.each(lambda group: float(group["momentum"])), np.float32(0))
        gammas = np.where(old, self.each(lambda group: 1 - float(group["momentum"])), np.float32(1))
        finite = kernels.sign_ballot(self.layout, gradients, self.memory, betas, gammas, "plus", 0, self.ballot)
        for index, gradient in enumerate(gradients):
            if finite and gradient is not None and not old[index]:
                self.remember(index)
        return finite

    def _vote(self, gradients: list[Tensor | None], finite: bool) -> kernels.Floats:
        """Write the ballot of stochastic signs, and return float32[1], the norm."""
        vectors = [
            part if gradient is not None and finite else None
            for part, gradient in zip(self._parts, gradients, strict=True)
        ]
        norm = kernels.l2_norm(self.layout, vectors)
        if not finite:
            self.ballot[: self.layout.header] = 0  # one norm for all: a gradient counts as a whole or not at all
        if norm or self.norm == "none":  # a norm of 0 that is carried is a vote for 0: any signs will do
            key = kernels.stream(self._key, self.steps_taken)
            kernels.stochastic_sign_ballot(self.layout, vectors, norm, key, self.ballot)
        return np.array([norm if np.isfinite(norm) else 0.0], np.float32)
