"""`{help} mpisign.train`: what `python -m mpisign.train --help` says, asked while the site is built."""

import os
import subprocess
import sys
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx


class Help(Directive):
    """The words of a command line's `--help`."""

    required_arguments: ClassVar[int] = 1
    optional_arguments: ClassVar[int] = 1

    def run(self) -> list[nodes.Node]:
        """Ask the program."""
        command = [sys.executable, "-m", *self.arguments, "--help"]
        settings = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, env=settings, timeout=120, check=False)
        if done.returncode:
            raise self.error(f"python -m {' '.join(self.arguments)} --help: {done.stderr}")
        return [nodes.literal_block(done.stdout, done.stdout.rstrip(), language="text")]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("help", Help)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
