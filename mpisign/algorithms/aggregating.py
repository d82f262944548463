"""What the dense family shares: an aggregate of the workers' gradients, then a step that every rank takes alike."""

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

from .. import aggregators, codecs
from ..codecs import Codec
from ..collectives import Mean
from ..collectives.aggregation import Aggregation
from ..comm.buffers import Staging
from ..errors import ParameterError
from .base import DistributedOptimizer, Params, dense_gradient
from .reports import Report


class AggregatingOptimizer(DistributedOptimizer):
    """Aggregates gradients through a codec, and gives the aggregate to `descend`, which a subclass writes.

    Without a codec and with the mean, vectors are summed by all ranks, in float64 where a parameter is float64. Else they
    are float32 and go to rank 0 and back (`Aggregation`). Residuals of error feedback are part of each rank's `state_dict`.

    Args:
        params: parameters or groups.
        defaults: hyperparameters of the groups.
        codec, two_way, aggregator, seed: as in `Aggregation`.
        comm: a mpisign Comm or an mpi4py communicator; COMM_WORLD by default.

    Raises:
        QuorumError: there are fewer ranks than the aggregator needs.
        ConfigError, ParameterError, DisagreementError: see `DistributedOptimizer`, and for a codec or aggregator that
            doesn't exist.
    """

    shared: ClassVar[tuple[str, ...]] = (
        *DistributedOptimizer.shared,
        *("momentum_buffer", "exp_avg", "exp_avg_sq", "step"),  # of what all ranks have aggregated
    )

    def __init__(
        self,
        params: Params,
        defaults: dict[str, Any],
        codec: str | Callable[[int], Codec],
        two_way: bool,
        aggregator: str | aggregators.Aggregator,
        seed: int,
        comm: Any,
    ) -> None:
        self.codec, self.two_way, self.aggregator, self.seed = codec, two_way, aggregator, seed
        DistributedOptimizer.__init__(self, params, defaults, comm)
        if not self._plain:
            self._warm_up()

    @property
    def _plain(self) -> bool:
        return self.codec == "float32" and self.aggregator == "mean"

    def check_group(self, group: dict[str, Any]) -> None:
        """Raise ParameterError where a group's hyperparameters, or what all groups share, can't be used."""
        super().check_group(group)
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or self.seed < 0:
            raise ParameterError(f"seed must be a whole number of at least 0, got {self.seed!r}")
        if not isinstance(self.two_way, bool):
            raise ParameterError(f"two_way must be True or False, got {self.two_way!r}")
        if not self._plain:
            if self.device.type != "cpu":
                raise ParameterError(
                    f"codec={self.codec!r}, aggregator={self.aggregator!r}: the parameters are on {self.device}, where only the "
                    f"mean of float32 works; leave both out, or move the model to the CPU"
                )
            codecs.build(self.codec, 0)
            tried = aggregators.build(self.aggregator)(torch.zeros(self.comm.size, 2))
            if not isinstance(tried, Tensor) or tried.shape != (2,) or tried.dtype != torch.float32:
                raise ParameterError(
                    f"aggregator {self.aggregator}: wanted float32[2] for float32[n, 2], got {tried!r}"
                )

    def settings(self) -> tuple[Any, ...]:
        """Codec, aggregator and seed: ranks that differ in them would wait for each other."""
        return (_name(self.codec), self.two_way, _name(self.aggregator), self.seed)

    def prepare(self) -> None:
        """Lay out the flat vector of gradients, keeping the residuals that are there."""
        numels = [p.numel() for p in self.parameters]
        self.mean: Mean | Aggregation
        if self._plain:
            wide = any(p.dtype == torch.float64 for p in self.parameters)
            self.mean = Mean(self.comm, numels, torch.float64 if wide else torch.float32, self.watch)
            return
        self.mean = Aggregation(
            self.comm, numels, self.codec, self.aggregator, self.two_way, self.seed, self.watch
        )  # fmt: skip
        for name, residual in self.mean.residuals.items():
            for p, part in zip(self.parameters, torch.split(residual, numels), strict=True):
                if name in self.state[p]:
                    part.copy_(self.state[p][name].reshape(-1))
                self.state[p][name] = part.view(p.shape)

    def _warm_up(self) -> None:
        """Compile what the codec needs, on one rank of each node first: the others then find Numba's cache filled."""
        codec = codecs.build(self.codec, 65)
        for turn in (True, False):
            if (getattr(self.comm, "local_rank", self.comm.rank) == 0) == turn:
                codec.decode(codec.encode(torch.zeros(65), 0))
            self.comm.barrier()

    @property
    def bytes_up(self) -> int:
        """Bytes that a worker hands over."""
        return self.mean.nbytes

    def update(self) -> Report:
        """Aggregate, then step."""
        gradients = [dense_gradient(p, index) for index, p in enumerate(self.parameters)]
        if self.staging is not None:
            gradients = self._on_host(gradients, self.staging)
        if isinstance(self.mean, Mean):
            means, finite = self.mean(gradients)
        else:
            means, finite = self.mean(gradients, self.steps_taken)
        with self.watch("apply"):
            shaped = zip(self.parameters, means, strict=True)
            self.descend([None if mean is None else mean.view(p.shape).to(p.device) for p, mean in shaped])
        return Report(self.mean.voters, finite=finite)

    def _on_host(self, gradients: list[Tensor | None], staging: Staging) -> list[Tensor | None]:
        """Copies of gradients that are on a GPU; all are under way before the first is waited for."""
        copies = [None if gradient is None else staging.fetch(gradient.detach()) for gradient in gradients]
        with self.watch("gradient"):  # the device is still busy with them
            return [None if arrived is None else arrived() for arrived in copies]

    @abc.abstractmethod
    def descend(self, means: list[Tensor | None]) -> None:
        """Change each parameter that has an aggregate, float32 or float64 of its shape, which may be spoilt."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` gave, bit for bit, whatever the parameters' dtype."""
        super().load_state_dict(state_dict)
        self.prepare()


def _name(setting: Any) -> str:
    return setting if isinstance(setting, str) else getattr(setting, "__qualname__", type(setting).__qualname__)
