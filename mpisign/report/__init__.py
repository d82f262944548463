"""A page about runs: `python -m mpisign.report runs/*` reads their folders and draws one HTML file. Needs matplotlib."""

from .page import page
from .runs import Run, named, read

__all__ = ["Run", "named", "page", "read"]
