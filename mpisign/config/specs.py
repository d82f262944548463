"""Settings that are little texts with a grammar: dirichlet:0.1, ranks:1,3, qsgd:4:max."""

import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from .. import registry
from ..errors import ConfigError
from .checks import Check


def parse_partition(spec: str, where: str = "") -> tuple[str, float | None]:
    """Return the name of a partition and its number, where it has one.

    Errors: ConfigError, which begins with `where`, unless `spec` is iid, shared, by_class, dirichlet:ALPHA with a finite
    ALPHA > 0 (small: each worker sees few classes; large: nearly iid), or file.py:attribute, with :NUMBER or without.

    >>> parse_partition("iid"), parse_partition("dirichlet:0.5"), parse_partition("my_file.py:mine:3")
    (('iid', None), ('dirichlet', 0.5), ('my_file.py:mine', 3.0))
    """
    kind, colon, argument = spec.partition(":")
    where = where or f"--partition {spec}"
    if kind == "dirichlet" and not (_is_number(argument) and 0 < float(argument) < math.inf):
        raise ConfigError(f"{where}: wanted dirichlet:ALPHA with a finite ALPHA above 0, as in dirichlet:0.5")
    if kind in ("iid", "shared", "by_class") and colon:
        raise ConfigError(f"{where}: {kind} takes no number; write {kind} alone")
    name, _, number = spec.rpartition(":")
    parsed = (name, float(number)) if name and _is_number(number) else (spec, None)
    registry.check("partition", parsed[0], where)
    return parsed


def parse_byzantine(spec: str, where: str = "") -> int | Fraction | tuple[int, ...]:
    """Return who lies: a number of workers, a share of them without rounding, or their ranks, lowest first.

    Errors: ConfigError, which begins with `where`, unless `spec` is a whole number, a share in [0, 1), or ranks: and ranks
    with commas between.

    >>> parse_byzantine("3"), parse_byzantine("0.4"), parse_byzantine("ranks:3,1")
    (3, Fraction(2, 5), (1, 3))
    """
    kind, colon, listed = spec.partition(":")
    where, ranks = where or f"--byzantine {spec}", listed.split(",")
    if colon and not (kind == "ranks" and all(map(_is_whole, ranks)) and len(set(map(int, ranks))) == len(ranks)):
        raise ConfigError(f"{where}: wanted different ranks with commas between, as in ranks:1,3")
    if colon:
        return tuple(sorted(map(int, ranks)))
    if _is_whole(spec):
        return int(spec)
    if not (_is_number(spec) and 0 <= float(spec) < 1):
        raise ConfigError(
            f"{where}: wanted a number of workers, a share in [0, 1), or ranks, as in 3, 0.4 or ranks:1,3"
        )
    return Fraction(repr(float(spec)))


def with_arguments(kind: str) -> Check:
    """Return the check of NAME or NAME:ARGUMENT[:ARGUMENT]; arguments of things outside are left to them."""

    def check_spec(spec: Any, where: str) -> None:
        name, arguments = registry.split(kind, spec)
        registry.check(kind, name, where)
        if name not in registry.BUILT_IN[kind]:
            return
        wanted, accepts = _ARGUMENTS.get(name, (f"{name} alone, it takes no argument", lambda: True))
        try:
            fits = accepts(*arguments)
        except TypeError:  # too few or too many
            fits = False
        if not fits:
            raise ConfigError(f"{where}: wanted {wanted}")

    return check_spec


_ARGUMENTS: dict[str, tuple[str, Callable[..., bool]]] = {
    "qsgd": (
        "qsgd:LEVELS or qsgd:LEVELS:max with a whole number of LEVELS from 1 to 32767, as in qsgd:4",
        lambda levels, norm="l2": isinstance(levels, int) and 1 <= levels <= 32767 and norm in ("l2", "max"),
    ),
    "topk": (
        "topk:SHARE with a SHARE above 0 and at most 1, as in topk:0.01",
        lambda share: not isinstance(share, str) and 0 < share <= 1,
    ),
    "trimmed_mean": (
        "trimmed_mean:SHARE with a SHARE of at least 0 and below 0.5, as in trimmed_mean:0.2",
        lambda share: not isinstance(share, str) and 0 <= share < 0.5,
    ),
    "krum": ("krum:LIARS with a whole number of LIARS, as in krum:2", lambda f: isinstance(f, int) and f >= 0),
}


def _is_whole(text: str) -> bool:
    return re.fullmatch("[0-9]{1,9}", text) is not None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
