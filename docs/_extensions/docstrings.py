"""The project's docstrings as reStructuredText, and links from the names in them to where these are described.

A docstring here is plain text: an indented block is a formula or code, a name stands between backticks, and
"Errors:" or "Source:" begin what they say. Sections (Args, Raises, Attributes) are left to napoleon.
"""

import re
import sys
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.nodes import make_refnode

_SECTION = re.compile(r"^(Args|Arguments|Attributes|Raises|Returns|Yields|Example|Examples|Note):$")
_CODE = re.compile(r"(``[^`]+``|`[^`\n]+`)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9.]*(\(\))?")
_DATA = ("attribute", "data", "property")
_COLON = "\ue000"  # in a sentence on data: napoleon takes what stands before a colon there for a type
_WHOLE = ("class", "exception", "function", "module", "data")
_SAID = re.compile(r"(?<!\w)(Errors|Source):(?= )")


def markup(lines: list[str]) -> list[str]:
    """Return a docstring's lines as reStructuredText."""
    return list(_blocks([line.expandtabs() for line in lines]))


def _blocks(lines: list[str]) -> Iterator[str]:
    section = literal = False
    before = ""
    for line in lines:
        indented = line.startswith("  ")
        if line.strip() and not indented:
            section, literal = bool(_SECTION.match(line)), False
        if (
            indented
            and not section
            and not literal
            and not before
            and not line.lstrip().startswith((">>>", "* ", "- "))
        ):
            literal = True
            yield from ("::", "")
        verbatim = literal or line.lstrip().startswith((">>>", "..."))
        yield line if verbatim or _SECTION.match(line) else _words(line)
        before = line.strip()


def _words(line: str) -> str:
    parts = _CODE.split(line)
    return "".join(_code(part) if part.startswith("`") else _plain(part) for part in parts)


def _code(part: str) -> str:
    said = part.strip("`")
    if _NAME.fullmatch(said) and not part.startswith("``"):
        return f":py:obj:`{said.removesuffix('()')}`"
    return f"``{said}``"


def _plain(part: str) -> str:
    bullet = re.match(r"\s*\* ", part)
    head, rest = (bullet.group(), part[bullet.end() :]) if bullet else ("", part)
    rest = rest.replace("\\", "\\\\").replace("*", "\\*").replace("|", "\\|").replace("`", "\\`")
    rest = re.sub(r"(?<=\w)_(?!\w)", r"\\_", rest)
    return head + _SAID.sub(r"**\1:**", rest)


def _process(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = markup(lines)
    if what in _DATA:
        lines[:] = [line.replace(":", _COLON) for line in lines]


def _restore(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = [line.replace(_COLON, ":") for line in lines]


def _skip(app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Leave out methods that only fill in what a base class of ours describes."""
    if not isinstance(obj, FunctionType) or "." not in obj.__qualname__:
        return None
    owner = getattr(sys.modules.get(obj.__module__), obj.__qualname__.split(".")[0], None)
    bases = owner.__mro__[1:] if isinstance(owner, type) else ()
    return True if any(name in vars(base) for base in bases if base.__module__.startswith("mpisign")) else None


def _resolve(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, contents: nodes.TextElement
) -> nodes.reference | None:
    """Link a Python name to the one class, function or method that ends so, if there is just one."""
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"]
    wanted = target.removeprefix("mpisign.")
    inside = node.get("py:class")
    python = env.domains.python_domain
    last = wanted.rsplit(".", 1)[-1]
    found = {
        name: entry for name, entry in python.objects.items() if name.rsplit(".", 1)[-1] == last and not entry.aliased
    }
    exact = {name: entry for name, entry in found.items() if name.endswith("." + wanted)}
    inner = target.startswith("mpisign.") or (
        wanted[:1].isupper() and "." not in wanted
    )  # described where it is exported
    chosen = exact or (found if inner else {})
    if inside:
        chosen = {name: entry for name, entry in chosen.items() if f".{inside}." in f".{name}"} or chosen
    kinds = {
        name: entry
        for name, entry in chosen.items()
        if entry.objtype in ("class", "exception", "function", "module", "data")
    }
    chosen = kinds or chosen
    if len(chosen) != 1:
        return None
    ((name, entry),) = chosen.items()
    return make_refnode(app.builder, node["refdoc"], entry.docname, entry.node_id, [contents], name)


def _without_source(app: Sphinx) -> list[Any]:
    """Forget modules that viewcode found no text of, as of built-in types: its index would link to pages that aren't there."""
    modules = getattr(app.env, "_viewcode_modules", {})
    for name in [name for name, found in modules.items() if not found]:
        del modules[name]
    return []


def setup(app: Sphinx) -> dict[str, bool]:
    """Register both."""
    app.connect("autodoc-process-docstring", _process, priority=100)  # before napoleon
    app.connect("autodoc-process-docstring", _restore, priority=900)
    app.connect("autodoc-skip-member", _skip)
    app.connect("html-collect-pages", _without_source, priority=100)  # before viewcode
    app.connect("missing-reference", _resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
