"""What happened in a step."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Report:
    """What happened in one step.

    Attributes:
        voters: workers that took part; the others had no gradient, or one that was not finite.
        agreement: share of this worker's signs that equal the verdict's; NaN where it did not vote, or signs don't exist.
        finite: whether this worker's gradient was finite.
    """

    voters: int = 0
    agreement: float = math.nan
    finite: bool = True


class LateReport(Report):
    """A report of which a GPU still computes the numbers: who reads agreement or finite waits for it.

    Args:
        voters: as in `Report`.
        numbers: waits for int64[3]: in how many coordinates the worker's signs differ from the verdict's, on how many it voted,
            and whether its gradient was finite.
    """

    def __init__(self, voters: int, numbers: Callable[[], Tensor]) -> None:
        super().__init__(voters)
        object.__setattr__(self, "_numbers", numbers)

    def __getattribute__(self, name: str) -> Any:
        if name in ("agreement", "finite"):
            differ, voted, finite = vars(self)["_numbers"]().tolist()
            return bool(finite) if name == "finite" else 1 - differ / voted if voted else math.nan
        return super().__getattribute__(name)
