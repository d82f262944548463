"""Formulas become MathML while the site is built, so that no page needs a script or a font for them.

docutils converts them. What it can't convert is a warning, which ends the build.
"""

import re
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)

# what docutils doesn't know, in words that it does
_SAID_OTHERWISE = (
    (re.compile(r"\\dots(?![a-zA-Z])"), r"\\ldots"),
    (re.compile(r"\\([td]?frac)\s*(\d)\s*(\d)"), r"\\\1{\2}{\3}"),
    (re.compile(r"\\([td]?frac)\s*(\d)\s*(?=\{)"), r"\\\1{\2}"),
    (re.compile(r"\\[bB]igg?[lrm]?(?![a-zA-Z])\s*(\\[{}|]|\\[a-zA-Z]+|[^a-zA-Z\s])"), r"\1"),
)


def mathml(tex: str, block: bool) -> str:
    """Return a formula as MathML.

    Errors: MathError for what docutils doesn't understand.
    """
    for pattern, words in _SAID_OTHERWISE:
        tex = pattern.sub(words, tex)
    return str(tex2mathml(tex, as_block=block))


def _show(self: Any, node: nodes.Element, block: bool) -> None:
    try:
        formula = mathml(node.astext(), block)
    except (MathError, IndexError, AttributeError) as error:  # the latter two where a formula breaks off
        logger.warning("no MathML for %r: %s", node.astext(), error, location=node, type="mathml")
        formula = f"<code>{self.encode(node.astext())}</code>"
    self.body.append(f'<div class="formula">{formula}</div>\n' if block else formula)
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer."""
    app.add_html_math_renderer(
        "mathml",
        inline_renderers=(lambda self, node: _show(self, node, False), None),
        block_renderers=(lambda self, node: _show(self, node, True), None),
    )
    return {"parallel_read_safe": True, "parallel_write_safe": True}
