"""One setting: what a field of a section carries."""

from dataclasses import field
from typing import Any

from .. import registry
from .checks import Check, accept


def setting(default: Any, flag: str, remark: str, check: Check = accept, metavar: str = "", alone: str = "") -> Any:
    """Return the field of a section.

    Args:
        default: its value, where it isn't told.
        flag: on the command line.
        remark: for --help.
        check: whether a value of its type will do.
        metavar: what --help calls its value.
        alone: the value of the flag without one; where it is empty, the flag needs one.
    """
    about = {"flag": flag, "remark": remark, "check": check, "metavar": metavar, "alone": alone}
    return field(default=default, metadata=about)


def names(kind: str) -> str:
    """Return the things of a kind, as a remark lists them."""
    return f"{', '.join(registry.BUILT_IN[kind])}, or file.py:attribute"
