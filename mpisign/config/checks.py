"""What a single setting may be."""

import math
import re
from collections.abc import Callable
from typing import Any

from .. import registry
from ..errors import ConfigError

Check = Callable[[Any, str], object]
"""Raises ConfigError unless the value will do; the second argument says where it came from. A parser is a check, too."""


def accept(value: Any, where: str) -> None:
    """Accept every value of the right type."""


def within(wanted: str, accepts: Callable[[Any], bool]) -> Check:
    """Return the check that `accepts` holds; its error says what was wanted."""

    def check_range(value: Any, where: str) -> None:
        if not accepts(value):
            raise ConfigError(f"{where}: wanted {wanted}")

    return check_range


COUNT = within("a whole number of at least 1", lambda number: number >= 1)
SEED = within("a whole number from 0 to 2^63 - 1", lambda number: 0 <= number < 2**63)
SHARE = within("a number in [0, 1)", lambda number: 0 <= number < 1)
POSITIVE = within("a finite number above 0", lambda number: 0 < number < math.inf)
NOT_NEGATIVE = within("a finite number of at least 0", lambda number: 0 <= number < math.inf)


def registered(kind: str) -> Check:
    """Return the check that a text names a built-in thing of a kind, or one outside."""
    return lambda value, where: registry.check(kind, value, where)


def check_device(value: str, where: str) -> None:
    """Accept cpu, cuda and cuda:NUMBER."""
    if not re.fullmatch("cpu|cuda(:[0-9]{1,4})?", value):
        raise ConfigError(
            f"{where}: no such device; wanted cpu, cuda (a GPU for each rank of a host, in turn), or one for all as in cuda:0"
        )
