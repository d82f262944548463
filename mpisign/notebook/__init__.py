"""`%load_ext mpisign.notebook` gives a notebook the cell magic `%%mpirun -n 4`, which runs a cell as so many ranks.

A rank is a process of its own: it sees no variable of the notebook, except those that `--with` sends along.
"""

from typing import Any


def load_ipython_extension(shell: Any) -> None:
    """Register the magic; IPython calls this for `%load_ext`."""
    from IPython.core.error import UsageError

    from ..errors import ConfigError
    from .magic import mpirun

    def magic(line: str, cell: str) -> None:
        try:
            mpirun(line, cell, shell.user_ns)
        except ConfigError as error:
            raise UsageError(str(error)) from None  # which IPython shows in one line

    shell.register_magic_function(magic, "cell", "mpirun")
