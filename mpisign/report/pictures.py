"""Pictures as they stand in a page: SVG that takes the page's colours, with names of its own; or PNG where that is smaller."""

import base64
import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from .markup import Markup, element

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_THEME = {"#000000": "currentColor", "#ffffff": "var(--paper)", "white": "var(--paper)", "black": "currentColor"}
_COLOR = re.compile("|".join(rf"{color}\b" for color in _THEME))
_NARROW = 400  # pixels, which a phone has; wider pictures shrink as far as they can be read, and are scrolled
_SMALLEST = 0.7
_DPI = 72  # of SVG, which then counts in points
PRINT_DPI = 200


@dataclass(frozen=True)
class Picture:
    """One picture.

    Attributes:
        key: names it: letters, digits and -, no other picture of the page has it.
        alt: what it shows, for those who don't see it.
        draw: draws it; with a legend where it is told that the picture stands alone.
        caption: stands above it.
    """

    key: str
    alt: str
    draw: "Callable[[bool], Figure]"
    caption: str = ""

    def png(self) -> bytes:
        """Return the picture as a file of its own."""
        buffer = io.BytesIO()
        self.draw(True).savefig(buffer, format="png", dpi=PRINT_DPI)
        return buffer.getvalue()

    def markup(self, most: int) -> Markup:
        """Return it for a page, as SVG of up to `most` bytes, or else as PNG."""
        figure = self.draw(False)
        width = round(figure.get_figwidth() * 96)
        least = round(_SMALLEST * width) if width > _NARROW else 0
        style = f"width:{width}px;min-width:{least}px"
        shown: Markup = _svg(figure, self.key, self.alt, style)
        if len(shown) > most:
            buffer = io.BytesIO()
            figure.savefig(buffer, format="png", dpi=110)
            source = f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
            shown = element("img", src=source, alt=self.alt, style=style, class_="drawn")
        if least:
            shown = element("div", shown, class_="scrolled", tabindex=0, role="region", aria_label=self.alt)
        caption = element("figcaption", self.caption) if self.caption else ""
        return element("figure", caption, shown)


def _svg(figure: "Figure", key: str, alt: str, style: str) -> Markup:
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": key, "figure.dpi": _DPI}):
        figure.savefig(buffer, format="svg", transparent=True)
    root = ElementTree.fromstring(buffer.getvalue())  # noqa: S314  Matplotlib has written it
    for parent in root.iter():
        for child in list(parent):
            if _local(child.tag) in ("metadata", "style", "title"):
                parent.remove(child)
    for node in root.iter():
        node.tag = _local(node.tag)
        node.attrib = {_local(name): _themed(_local(name), value, key) for name, value in node.attrib.items()}
    root.attrib = {
        "viewBox": root.attrib["viewBox"],
        "role": "img",
        "aria-label": alt,
        "class": "drawn",
        "style": style,
    }
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _local(name: str) -> str:
    return name.rpartition("}")[2]


def _themed(name: str, value: str, key: str) -> str:
    """An attribute with the page's colours and font, and with names that no other picture has."""
    if name == "id":
        return f"{key}.{value}"
    if name == "href":
        return f"#{key}.{value.removeprefix('#')}"
    value = re.sub(r"url\(#", f"url(#{key}.", value)
    if name == "style":
        value = _COLOR.sub(lambda found: _THEME[found.group()], value)
        value = re.sub(r"font: ([\d.]+px) [^;]*", r"font-size: \1", value)
        value = re.sub(r"font-family: [^;]*;?", "", value)
    return value
