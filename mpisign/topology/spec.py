"""Topologies by name: "chain:16", "torus:4x4", "random_regular:16:3:seed=1", "file:edges.txt", "my_file.py:mine:16"."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

from .. import registry
from ..errors import TopologyError
from .digraph import Digraph
from .exponential import OnePeerExponential
from .graph import Graph
from .tree import Tree

Topology = Graph | Digraph | OnePeerExponential | tuple[Tree, ...]
"""What a spec may stand for; a Tree is a Graph, and several trees share the work."""

_REST = (Path, Graph, Tree)  # an argument of such a type is all the rest of the spec: a path or another spec
_SIZE = ("n", "size")


def parse(spec: str, size: int | None = None) -> Topology:
    """Return the topology that a text describes.

        NAME[:SIZE][:ARGUMENT…][:KEY=VALUE…]    chain:16, star:8:center=3, random_regular:16:3:seed=1
        NAME:ROWSxCOLUMNS                       torus:4x4, grid:2x8
        file:PATH                               a file with an edge a line; directed_file:PATH
        NAME:SPEC[:KEY=VALUE…]                  a tree of another: spanning_tree:torus:4x4:root=5, mirrored:chain:4
        FILE.py:NAME[:…], MODULE:NAME[:…]       one's own function (n, …), or one's own Graph

    SIZE is left out where `size` says it: parse("random_regular:degree=3", 16), parse("star::3", 16).

    Args:
        spec: the text.
        size: the number of ranks, which the topology must have.

    Errors: ConfigError for a name that is not known; TopologyError for arguments that are missing, unknown or wrong, for
    what is no topology, and where spec and size differ.

    >>> parse("chain:3").neighbors
    ((1,), (0, 2), (1,))
    >>> parse("torus", size=16) == parse("torus:4x4")
    True
    """
    name, rest = _split_name(spec)
    thing = registry.load("topology", name)
    if isinstance(thing, get_args(Topology)[:-1]):
        if rest:
            raise TopologyError(
                f"topology {spec}: {name} is a ready-made {type(thing).__name__} and takes no arguments"
            )
        found = thing
    elif callable(thing):
        found = thing(**_arguments(spec, name, thing, rest, size))
    else:
        raise TopologyError(f"topology {spec}: {name} is {thing!r}: wanted a function (n, …) -> Graph, or a Graph")
    return _checked(found, spec, size)


def size_of(topology: Topology) -> int:
    """Return the number of nodes."""
    return topology[0].size if isinstance(topology, tuple) else topology.size


def usage(name: str) -> str:
    """Return how a built-in topology is written, with the defaults of what may be left out.

    >>> usage("star")
    'star:N[:center=0]'
    """
    text = name
    for parameter in _parameters(registry.load("topology", name)):
        if parameter.annotation in _REST:
            text += ":PATH" if parameter.annotation is Path else ":TOPOLOGY"
        elif parameter.name in _SIZE:
            text += ":N"
        elif parameter.default is None:
            text += f"[:{parameter.name}]"
        elif parameter.default is parameter.empty:
            text += f":{parameter.name}"
        else:
            text += f"[:{parameter.name}={parameter.default}]"
    return text


def _split_name(spec: str) -> tuple[str, str]:
    """Return the name that the registry knows, `file.py:attribute` with its colon, and what follows it."""
    name, _, rest = spec.partition(":")
    if name not in registry.BUILT_IN["topology"] and rest:
        attribute, _, after = rest.partition(":")
        if name.endswith(".py") or (attribute.isidentifier() and not registry.nearest(name, _names())):
            name, rest = f"{name}:{attribute}", after
    registry.check("topology", name, f"topology {spec}")
    return name, rest


def _names() -> list[str]:
    return list(registry.BUILT_IN["topology"])


def _arguments(spec: str, name: str, build: Callable[..., Any], rest: str, size: int | None) -> dict[str, Any]:
    """Return the arguments of `build`, from the text and the number of ranks."""
    parameters = {parameter.name: parameter for parameter in _parameters(build)}
    tokens = rest.split(":") if rest else []
    named = {}
    whole = next((each.name for each in parameters.values() if each.annotation in _REST), None)
    while tokens and "=" in tokens[-1] and (whole is None or tokens[-1].partition("=")[0] in parameters):
        key, _, value = tokens.pop().partition("=")
        if key in named:
            raise TopologyError(f"topology {spec}: {key} is given twice")
        named[key] = value
    if whole is not None:
        named[whole] = ":".join(tokens)
    else:
        named |= _by_place(spec, tokens, parameters, named)
    given = _converted(spec, named, parameters, size)
    count = next((each for each in _SIZE if each in parameters), None)
    if count is not None and count not in given:
        given[count] = size
    for key, parameter in parameters.items():
        if given.get(key, parameter.default) is parameter.empty or (key == count and given[key] is None):
            raise TopologyError(f"topology {spec}: {key} is missing: wanted {_wanted(name, build)}")
    if count is not None and size is not None and given[count] != size:
        raise TopologyError(f"topology {spec} has {given[count]} nodes, but there are {size} ranks: one rank a node")
    return given


def _by_place(
    spec: str, tokens: list[str], parameters: dict[str, inspect.Parameter], named: dict[str, str]
) -> dict[str, str]:
    if len(tokens) > len(parameters):
        wanted = f"at most {len(parameters)}, {', '.join(parameters)}" if parameters else "none"
        raise TopologyError(f"topology {spec}: {len(tokens)} arguments: wanted {wanted}")
    placed = {key: token for key, token in zip(parameters, tokens, strict=False) if token}
    for key in placed:
        if key in named:
            raise TopologyError(f"topology {spec}: {key} is given twice, as {placed[key]} and as {named[key]}")
    for key in _SIZE:
        if "x" in placed.get(key, "") and "rows" in parameters:
            rows, _, columns = placed.pop(key).partition("x")
            if not (rows.isdecimal() and columns.isdecimal()) or "rows" in named:
                raise TopologyError(f"topology {spec}: {rows}x{columns} is no shape: wanted rows x columns, as in 4x4")
            placed |= {key: str(int(rows) * int(columns)), "rows": rows}
    return placed


def _converted(
    spec: str, named: dict[str, str], parameters: dict[str, inspect.Parameter], size: int | None
) -> dict[str, Any]:
    given = {}
    for key, text in named.items():
        if key not in parameters:
            known = ", ".join(parameters) or "none"
            raise TopologyError(
                f"topology {spec}: no argument {key}{registry.nearest(key, parameters)}; known are: {known}"
            )
        given[key] = _value(spec, text, parameters[key], size)
    return given


def _value(spec: str, text: str, parameter: inspect.Parameter, size: int | None) -> Any:
    kind = parameter.annotation
    if kind in _REST and not text:
        raise TopologyError(
            f"topology {spec}: {'the path' if kind is Path else 'the topology to take it from'} is missing"
        )
    if kind is Path:
        return Path(text)
    if kind in _REST:
        inner = parse(text, size)
        if not isinstance(inner, kind):
            raise TopologyError(f"topology {spec}: {text} is no {kind.__name__.lower()}")
        return inner
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise TopologyError(f"topology {spec}: {parameter.name} is {text!r}: wanted true or false")
        return text.lower() == "true"
    wanted = get_args(kind) or (kind,)
    for convert in (int, float):
        if convert in wanted or kind is parameter.empty:
            try:
                return convert(text)
            except ValueError:
                continue
    if {int, float} & {*wanted}:
        raise TopologyError(
            f"topology {spec}: {parameter.name} is {text!r}: wanted a {'number' if float in wanted else 'whole number'}"
        )
    return text


def _parameters(build: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        signature = inspect.signature(build, eval_str=True)
    except NameError:  # an annotation that is imported for type checkers alone
        signature = inspect.signature(build)
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return [parameter for parameter in signature.parameters.values() if parameter.kind not in kinds]


def _wanted(name: str, build: Callable[..., Any]) -> str:
    if name in registry.BUILT_IN["topology"]:
        return usage(name)
    return f"{name}:{':'.join(parameter.name.upper() for parameter in _parameters(build))}"


def _checked(found: Any, spec: str, size: int | None) -> Topology:
    trees = isinstance(found, tuple) and found and all(isinstance(each, Tree) for each in found)
    if not (trees or isinstance(found, get_args(Topology)[:-1])):
        raise TopologyError(f"topology {spec} gave {type(found).__name__}: wanted a Graph, Tree, Digraph or trees")
    topology: Topology = found
    if size is not None and size_of(topology) != size:
        raise TopologyError(
            f"topology {spec} has {size_of(topology)} nodes, but there are {size} ranks: one rank a node"
        )
    return topology
