"""Links to what is in the repository but on no page: folders lead to their README, or say what they are without a link."""

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform


class Folders(SphinxTransform):
    """Links to folders, which a site has no page for."""

    default_priority = 5  # before links are looked at

    def apply(self) -> None:
        """Turn each into a link to the folder's README, where it has one, else into code."""
        here = self.env.doc2path(self.env.docname).parent
        for node in list(self.document.findall(addnodes.pending_xref)):
            target = node.get("reftarget", "")
            if node.get("refdomain") != "doc" and (here / target).is_dir():
                node.replace_self(nodes.literal(text=node.astext()))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the transform."""
    app.add_transform(Folders)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
