"""What ranks get from a notebook: its functions and classes as source, what modules hold by name, and plain values."""

import ast
import dis
import importlib
import inspect
import linecache
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from types import CodeType, FunctionType, ModuleType
from typing import Any, Literal

from .parcel import check_sendable

NOTEBOOK = "<notebook {}>"
"""The file name of what a notebook has sent, in tracebacks."""


@dataclass(frozen=True)
class Item:
    """One variable: `content` is the name of a module, "module:attribute", a source text, or the value itself."""

    name: str
    kind: Literal["module", "attribute", "source", "value"]
    content: Any


def pack(names: Sequence[str], namespace: Mapping[str, Any]) -> list[Item]:
    """Return items of these variables, and of those that the functions and classes among them use, in their order.

    Errors: NameError for a name that isn't there, TypeError for a value that can't be sent.
    """
    missing = [name for name in names if name not in namespace]
    if missing:
        raise NameError(f"no variable called {', '.join(missing)} in this notebook: run the cell that defines it first")
    wanted, found = list(names), set()
    while wanted:
        name = wanted.pop()
        found.add(name)
        used = {part for code in _codes(namespace[name]) for part in _names(code)} | _bases(namespace[name], namespace)
        wanted += [part for part in used if part in namespace and part not in found]
    return [_item(name, namespace[name]) for name in namespace if name in found]


def unpack(items: Sequence[Item], namespace: dict[str, Any]) -> None:
    """Put the items into a namespace, in order: a class may derive from one before it."""
    for item in items:
        if item.kind == "source":
            execute(item.content, item.name, namespace)
        else:
            namespace[item.name] = item.content if item.kind == "value" else _imported(item.content)


def execute(source: str, title: str, namespace: dict[str, Any]) -> None:
    """Run source so that a traceback shows its lines."""
    name = NOTEBOOK.format(title)
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    exec(compile(source, name, "exec"), namespace)  # noqa: S102


def _item(name: str, value: Any) -> Item:
    if isinstance(value, ModuleType):
        return Item(name, "module", value.__name__)
    if _is_of_notebook(value):
        return Item(name, "source", _source(name, value))
    if _is_of_module(value):
        return Item(name, "attribute", f"{value.__module__}:{value.__qualname__}")
    check_sendable(name, value, "other ranks")
    return Item(name, "value", value)


def _imported(reference: str) -> Any:
    """A module, or what it holds."""
    module, _, attributes = reference.partition(":")
    return reduce(getattr, filter(None, attributes.split(".")), importlib.import_module(module))


def _is_of_module(value: Any) -> bool:
    """Whether a function, a class or the like is found in a module under its own name, so that its name will do."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__" or module not in sys.modules:
        return False
    found: Any = sys.modules[module]
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is value


def _is_of_notebook(value: Any) -> bool:
    return isinstance(value, (FunctionType, type)) and value.__module__ == "__main__"


def _codes(value: Any) -> Iterator[CodeType]:
    if not _is_of_notebook(value):
        return
    for part in [value] if isinstance(value, FunctionType) else vars(value).values():
        function = inspect.unwrap(part) if isinstance(part, FunctionType) else None
        if function is not None:
            yield function.__code__


def _bases(value: Any, namespace: Mapping[str, Any]) -> set[str]:
    """What the classes are called here that a class of the notebook derives from."""
    bases = value.__bases__ if isinstance(value, type) and _is_of_notebook(value) else ()
    return {name for name, other in namespace.items() if any(other is base for base in bases)}


def _names(code: CodeType) -> Iterator[str]:
    """The global names that a function reads, and the functions in it; `chain` in `topology.chain` is none."""
    yield from (str(one.argval) for one in dis.get_instructions(code) if one.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _source(name: str, value: Any) -> str:
    """The text of a definition; `inspect` finds no classes of notebooks."""
    for code in _codes(value):
        lines = linecache.getlines(code.co_filename)
        for node in ast.walk(ast.parse("".join(lines))):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name:
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                return inspect.cleandoc("\n" + "".join(lines[first - 1 : node.end_lineno]))
    raise TypeError(f"{name} can't be sent to other ranks: its def or class was not found in a cell of this notebook")
