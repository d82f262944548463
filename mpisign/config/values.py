"""One check and one conversion of values, for flags, the TOML file and constructors."""

import os
from collections.abc import Callable
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, get_args

from .. import registry
from ..errors import ConfigError


def settle(section: Any) -> None:
    """Check each field of a section under construction, and convert int to float and str to Path where wanted."""
    for entry in fields(section):
        value = getattr(section, entry.name)
        object.__setattr__(section, entry.name, checked(entry, value, f"{entry.name}={value!r}"))


def checked(entry: Field[Any], value: Any, where: str) -> Any:
    """Return the value as the field's type, after its check; the ConfigError begins with `where` it came from."""
    kind, optional = kind_of(entry)
    if value is None and optional:
        return None
    converted = _CONVERT[kind](value, where) if kind in _CONVERT else _one_of(get_args(kind), value, where)
    entry.metadata["check"](converted, where)
    return converted


def kind_of(entry: Field[Any]) -> tuple[Any, bool]:
    """Return the type of a field without its None, and whether it had one."""
    alternatives = get_args(entry.type)
    if type(None) not in alternatives:
        return entry.type, False
    return alternatives[0], True


def as_path(value: Any, where: str) -> Path:
    """Return text as a path, with ~ expanded; ConfigError for what can't be one."""
    return Path(os.path.expanduser(_text(str(value) if isinstance(value, Path) else value, where)))


def _one_of(choices: tuple[str, ...], value: Any, where: str) -> str:
    if value not in choices:
        raise ConfigError(
            f"{where}: no such choice{registry.nearest(str(value), choices)}; wanted {' or '.join(choices)}"
        )
    return str(value)


def _whole(value: Any, where: str) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ConfigError(f"{where}: wanted a whole number")
    return int(value)


def _real(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{where}: wanted a number")
    try:
        return float(value)
    except OverflowError:
        raise ConfigError(f"{where}: wanted a number that fits into 64 bits") from None


def _truth(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{where}: wanted true or false")
    return value


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{where}: wanted text")
    if not value or "\0" in value or value != value.encode(errors="ignore").decode():
        raise ConfigError(f"{where}: wanted text that is not empty, in UTF-8")
    return value


_CONVERT: dict[Any, Callable[[Any, str], Any]] = {
    int: _whole,
    float: _real,
    bool: _truth,
    str: _text,
    Path: as_path,
}
