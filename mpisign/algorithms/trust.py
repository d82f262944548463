"""Steps that are bounded by a share of the weights' norm, parameter by parameter (LARC; You, Gitman, Ginsburg 2017)."""

import math
from typing import Any

from ..errors import ParameterError

_SLACK = 1e-8  # keeps a layer whose weights are all 0 from dividing by 0


def check_trust(trust: Any) -> None:
    """Raise ParameterError unless `trust` is a finite number above 0, or None."""
    if trust is not None and not (isinstance(trust, float | int) and 0 < trust < math.inf):
        raise ParameterError(f"trust must be a finite number above 0, or None; got {trust!r}")


def trusted(rate: float, trust: float, norm: float, numel: int, weight_decay: float) -> float:
    """Return η' = min(η, trust·‖x‖/(√d + λ‖x‖)).

    Args:
        rate: η.
        trust: the share, > 0.
        norm: ‖x‖.
        numel: d, the parameter's coordinates; √d is the norm of any vector of signs.
        weight_decay: λ.
    """
    return min(rate, trust * norm / (math.sqrt(numel) + weight_decay * norm + _SLACK))
