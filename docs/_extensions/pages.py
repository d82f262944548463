"""`{pages}`: a toctree of those of the pages named that are there, so that the site can be built while one is written."""

from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.directives.other import TocTree


class Pages(TocTree):
    """A toctree without the lines that no page matches."""

    def run(self) -> list[nodes.Node]:
        """Leave out what isn't there; a toctree of nothing is nothing."""
        here = Path(self.env.doc2path(self.env.docname)).parent
        for number in reversed(range(len(self.content))):
            name = self.content[number].strip().split("<")[-1].rstrip(">")
            top = Path(self.env.srcdir) if name.startswith("/") else here
            if not any(found.suffix in (".md", ".ipynb") for found in top.glob(f"{name.lstrip('/')}.*")):
                del self.content[number]
        return super().run() if self.content else []


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("pages", Pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
