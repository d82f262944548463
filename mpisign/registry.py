"""Names to things: what `--algorithm signum` means, and `--algorithm my_file:Mine` for things outside.

Nothing is imported until a thing is asked for, so that the command line can check names in milliseconds. To add a
built-in thing, write its file and add its line here.
"""

import difflib
import importlib
import sys
from pathlib import Path
from typing import Any

from .errors import ConfigError

BUILT_IN: dict[str, dict[str, str]] = {
    "algorithm": {
        "signum": "mpisign.algorithms.signum:Signum",
        "signsgd": "mpisign.algorithms.signum:SignSGD",
        "sgd": "mpisign.algorithms.sgd:SGD",
    },
    "vote": {
        "server": "mpisign.collectives.server:ServerVote",
    },
    "task": {
        "digits": "mpisign.tasks.digits:Digits",
        "mnist": "mpisign.tasks.images:MNIST",
        "fashion_mnist": "mpisign.tasks.images:FashionMNIST",
        "cifar10": "mpisign.tasks.images:CIFAR10",
    },
    "model": {
        "mlp": "mpisign.tasks.models:mlp",
        "lenet": "mpisign.tasks.models:lenet",
        "vgg11": "mpisign.tasks.models:vgg11",
    },
    "partition": {
        "iid": "mpisign.tasks.partition:iid",
        "dirichlet": "mpisign.tasks.partition:dirichlet",
        "by_class": "mpisign.tasks.partition:by_class",
    },
}


def nearest(name: str, known: list[str]) -> str:
    """Return a hint ", did you mean 'x'?" where one of `known` is close to `name`, else "".

    >>> nearest("signun", ["signum", "sgd"])
    ", did you mean 'signum'?"
    """
    close = difflib.get_close_matches(name.lower(), known, n=1)
    return f", did you mean {close[0]!r}?" if close else ""


def check(kind: str, name: str) -> None:
    """Raise ConfigError unless `name` is a built-in `kind` or has the form `module:attribute`."""
    known = sorted(BUILT_IN[kind])
    if name not in known and ":" not in name:
        raise ConfigError(
            f"--{kind} {name}: no such {kind}{nearest(name, known)} Known: {', '.join(known)}; "
            f"for one of your own give module:attribute or file.py:attribute"
        )


def load(kind: str, name: str) -> Any:
    """Import and return the thing called `name`: a built-in, `module:attribute`, or `path/file.py:attribute`."""
    check(kind, name)
    module_name, _, attribute = BUILT_IN[kind].get(name, name).rpartition(":")
    path = Path(module_name if module_name.endswith(".py") else module_name.replace(".", "/") + ".py")
    if name not in BUILT_IN[kind] and path.is_file():
        sys.path.insert(0, str(path.parent.resolve()))
        module_name = path.stem
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except ImportError as error:
        raise ConfigError(f"--{kind} {name}: can't import {module_name} ({error})") from error
    except AttributeError as error:
        raise ConfigError(f"--{kind} {name}: {module_name} has no {attribute}") from error
