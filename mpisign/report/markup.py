"""HTML whose text can't become markup: strings are escaped, unless they were made here."""

from html import escape

_EMPTY = {"br", "meta", "img"}


class Markup(str):
    """HTML already."""

    __slots__ = ()


def element(name: str, *content: object, **attributes: object) -> Markup:
    """Return `<name attributes>content</name>`; in names of attributes, _ stands for -, and a last _ for nothing.

    >>> element("a", "1 < 2", href="#x", class_='"')
    '<a href="#x" class="&quot;">1 &lt; 2</a>'
    """
    given = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"' for key, value in attributes.items())
    inside = "" if name in _EMPTY else f"{together(*content)}</{name}>"
    return Markup(f"<{name}{given}>{inside}")


def together(*content: object) -> Markup:
    """Return contents one after the other."""
    return Markup("".join(each if isinstance(each, Markup) else escape(str(each)) for each in content))
