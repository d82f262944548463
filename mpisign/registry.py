"""Names to things: what `--algorithm signum` means, and `--algorithm my_file.py:Mine` for things outside.

Nothing is imported until a thing is asked for, so that the command line can check names in milliseconds. To add a
built-in thing, write its file and add its line here.
"""

import difflib
import importlib
import importlib.util
import sys
import zlib
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from .errors import ConfigError

BUILT_IN: dict[str, dict[str, str]] = {
    "algorithm": {
        "signum": "mpisign.algorithms.signum:Signum",
        "signsgd": "mpisign.algorithms.signum:SignSGD",
        "lion": "mpisign.algorithms.lion:Lion",
        "sgd": "mpisign.algorithms.sgd:SGD",
        "adam": "mpisign.algorithms.adam:Adam",
        "ssdm": "mpisign.algorithms.ssdm:SSDM",
        "ef_signsgd": "mpisign.algorithms.ef_signsgd:EFSignSGD",
        "relaysgd": "mpisign.algorithms.relaysgd:RelaySGD",
        "relaysgd_grad": "mpisign.algorithms.relaysgd_grad:RelaySGDGrad",
        "relay_mix": "mpisign.algorithms.relay_mix:RelayMix",
        "relay_signum": "mpisign.algorithms.relay_signum:RelaySignum",
        "relay_signum_stale": "mpisign.algorithms.relay_signum:StaleRelaySignum",
        "dpsgd": "mpisign.algorithms.dpsgd:DPSGD",
        "d2": "mpisign.algorithms.d2:D2",
        "exact_diffusion": "mpisign.algorithms.d2:ExactDiffusion",
        "gradient_tracking": "mpisign.algorithms.gradient_tracking:GradientTracking",
        "quasi_global": "mpisign.algorithms.quasi_global:QuasiGlobal",
        "sgp": "mpisign.algorithms.sgp:StochasticGradientPush",
        "allreduce": "mpisign.algorithms.allreduce_model:AllReduceModel",
    },
    "vote": {
        "auto": "mpisign.collectives.auto:auto",
        "server": "mpisign.collectives.server:ServerVote",
        "sharded": "mpisign.collectives.sharded:ShardedVote",
        "tree": "mpisign.collectives.tree:TreeVote",
        "hierarchical": "mpisign.collectives.hierarchical:HierarchicalVote",
        "majority_of_majorities": "mpisign.collectives.majority_of_majorities:MajorityOfMajorities",
    },
    "codec": {
        "float32": "mpisign.codecs.floats:Float32",
        "float16": "mpisign.codecs.floats:Float16",
        "bfloat16": "mpisign.codecs.floats:BFloat16",
        "qsgd": "mpisign.codecs.qsgd:QSGD",
        "topk": "mpisign.codecs.topk:TopK",
        "sign": "mpisign.codecs.sign:ScaledSign",
    },
    "aggregator": {
        "mean": "mpisign.aggregators:mean",
        "median": "mpisign.aggregators:median",
        "trimmed_mean": "mpisign.aggregators:trimmed_mean",
        "krum": "mpisign.aggregators:krum",
    },
    "attack": {
        "invert": "mpisign.attacks:Invert",
        "random": "mpisign.attacks:Random",
        "constant": "mpisign.attacks:Constant",
        "silent": "mpisign.attacks:Silent",
        "stale": "mpisign.attacks:Stale",
        "blind": "mpisign.attacks:Blind",
        "nan": "mpisign.attacks:NaN",
        "label_flip": "mpisign.attacks:LabelFlip",
        "alie": "mpisign.overhearing:ALIE",
        "inner_product": "mpisign.overhearing:InnerProduct",
        "omniscient": "mpisign.overhearing:Omniscient",
        "alie_sign": "mpisign.overhearing:ALIESign",
        "inner_product_sign": "mpisign.overhearing:InnerProductSign",
    },
    "task": {
        "digits": "mpisign.tasks.digits:Digits",
        "mnist": "mpisign.tasks.images:MNIST",
        "fashion_mnist": "mpisign.tasks.images:FashionMNIST",
        "cifar10": "mpisign.tasks.images:CIFAR10",
    },
    "model": {
        "mlp": "mpisign.tasks.models:mlp",
        "small_cnn": "mpisign.tasks.models:small_cnn",
        "lenet": "mpisign.tasks.models:lenet",
        "vgg11": "mpisign.tasks.models:vgg11",
    },
    "partition": {
        "iid": "mpisign.tasks.partition:iid",
        "shared": "mpisign.tasks.partition:shared",
        "dirichlet": "mpisign.tasks.partition:dirichlet",
        "by_class": "mpisign.tasks.partition:by_class",
    },
    "topology": {
        "chain": "mpisign.topology.builders:chain",
        "star": "mpisign.topology.builders:star",
        "binary_tree": "mpisign.topology.builders:binary_tree",
        "double_binary_trees": "mpisign.topology.builders:double_binary_trees",
        "kary_tree": "mpisign.topology.builders:kary_tree",
        "mirrored": "mpisign.topology.builders:mirrored",
        "ring": "mpisign.topology.graphs:ring",
        "complete": "mpisign.topology.graphs:complete",
        "grid": "mpisign.topology.graphs:grid",
        "torus": "mpisign.topology.graphs:torus",
        "hypercube": "mpisign.topology.graphs:hypercube",
        "exponential": "mpisign.topology.exponential:exponential",
        "one_peer_exponential": "mpisign.topology.exponential:OnePeerExponential",
        "random_regular": "mpisign.topology.random_graphs:random_regular",
        "erdos_renyi": "mpisign.topology.random_graphs:erdos_renyi",
        "small_world": "mpisign.topology.random_graphs:small_world",
        "davis_southern_women": "mpisign.topology.davis:davis_southern_women",
        "spanning_tree": "mpisign.topology.spanning:spanning_tree",
        "best_spanning_tree": "mpisign.topology.spanning:best_spanning_tree",
        "minimum_diameter_tree": "mpisign.topology.spanning:minimum_diameter_tree",
        "file": "mpisign.topology.outside:read_edges",
        "directed_file": "mpisign.topology.outside:read_arcs",
    },
}


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the hint " (did you mean 'x'?)" where one of `known` is close to `name`, else "".

    >>> nearest("signun", ["signum", "sgd"])
    " (did you mean 'signum'?)"
    """
    close = difflib.get_close_matches(name.lower(), list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def check(kind: str, name: str, where: str = "") -> None:
    """Raise ConfigError unless `name` is a built-in `kind` or has the form `module:attribute` or `file.py:attribute`.

    `where` begins the message; by default it is the flag, `--kind name`.
    """
    known = sorted(BUILT_IN[kind])
    if name in known or _is_reference(name):
        return
    raise ConfigError(
        f"{where or f'--{kind} {name}'}: no such {kind}{nearest(name, known)}; known are {', '.join(known)}; "
        f"one of your own is given as module:attribute or file.py:attribute"
    )


def split(kind: str, spec: str) -> tuple[str, list[int | float | str]]:
    """Return the name in NAME or NAME:ARGUMENT[:ARGUMENT], and the arguments: as int or float where they are numbers.

    The name may be a built-in one, or module:attribute or file.py:attribute; nothing is checked.

    >>> split("codec", "qsgd:4:max"), split("aggregator", "my_file.py:mine:0.5")
    (('qsgd', [4, 'max']), ('my_file.py:mine', [0.5]))
    """
    fields = spec.split(":")
    alone = fields[0] in BUILT_IN[kind] or not _is_reference(":".join(fields[:2]))
    return ":".join(fields[: 1 if alone else 2]), [_as_number(field) for field in fields[1 if alone else 2 :]]


def _as_number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def load(kind: str, name: str) -> Any:
    """Import and return the thing called `name`: a built-in, `module:attribute`, or `path/file.py:attribute`.

    A file becomes a module of its own that shadows no installed one, and is run once however often it is asked for.
    Errors: ConfigError where the name, the module or the attribute does not exist. Whatever else the user's own code
    raises while it is imported passes through, with its traceback.
    """
    check(kind, name)
    source, _, attribute = BUILT_IN[kind].get(name, name).rpartition(":")
    try:
        module = _module_of_file(Path(source)) if source.endswith(".py") else _module_of_name(source)
    except (ImportError, FileNotFoundError) as error:
        raise ConfigError(f"--{kind} {name}: can't import {source} ({error})") from error
    if not hasattr(module, attribute):
        raise ConfigError(f"--{kind} {name}: {source} has no {attribute}{nearest(attribute, vars(module))}")
    return getattr(module, attribute)


def _is_reference(name: str) -> bool:
    source, _, attribute = name.rpartition(":")
    return attribute.isidentifier() and (
        source.endswith(".py") or all(part.isidentifier() for part in source.split("."))
    )


def _module_of_name(name: str) -> ModuleType:
    """Import an installed module, or failing that the file of its name below the current folder."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        path = Path(*name.split(".")).with_suffix(".py")
        if error.name != name.split(".")[0] or not path.is_file():
            raise
    return _module_of_file(path)


def _module_of_file(path: Path) -> ModuleType:
    path = path.resolve()
    name = f"mpisign_file_{path.stem}_{zlib.crc32(str(path).encode()):08x}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # noqa: PT018  the name ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs: dataclasses and pickle look their module up
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
