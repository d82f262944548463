"""Lion with majority vote."""

from typing import Any, ClassVar

import numpy as np

from .. import kernels
from ..errors import ParameterError
from .base import Params
from .signum import Signum


class Lion(Signum):
    """Lion (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", Algorithm 2), its sign by majority vote.

        worker:  sends sign(β₁v + (1−β₁)g);  v ← β₂v + (1−β₂)g      one bit a coordinate
        server:  V = majority of the signs                          one bit a coordinate back
        worker:  x ← x − η(V + λx)

    With β₁ = β₂ it is Signum. On one worker it is Lion.

    Args:
        params: parameters or groups.
        lr: η >= 0.
        momentum: β₁ in [0, 1), the share of v in what is signed.
        weight_decay: λ >= 0, decoupled.
        memory: β₂ in [0, 1), the share of v that is kept.
        rules: all other arguments of `Signum`.

    Raises:
        ParameterError, DisagreementError: see `DistributedOptimizer`.
    """

    default_lr: ClassVar[float] = 1e-4

    def __init__(
        self,
        params: Params,
        lr: float | None = None,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        *,
        memory: float = 0.99,
        **rules: Any,
    ) -> None:
        self.kept_share = memory
        super().__init__(params, lr, momentum, weight_decay, **rules)

    def check_group(self, group: dict[str, Any]) -> None:
        """Raise ParameterError where a group's hyperparameters can't be used."""
        super().check_group(group)
        if not isinstance(self.kept_share, float | int) or not 0 <= self.kept_share < 1:
            raise ParameterError(f"memory must be at least 0 and below 1, got {self.kept_share!r}")

    def settings(self) -> tuple[Any, ...]:
        """As Signum's, and β₂."""
        return (*super().settings(), self.kept_share)

    def keeps(self) -> bool:
        """Lion keeps a momentum even where none of it is signed."""
        return True

    def kept_factors(self, own: slice, scale: float) -> kernels.Floats:
        """β₂ and 1 − β₂."""
        ones = np.ones(own.stop - own.start, np.float32)
        return np.stack(
            [np.float32(self.kept_share) * ones, np.float32(1 - self.kept_share) * ones / np.float32(scale)]
        )
