"""Run notebooks from top to bottom. As a program: run those named, all tutorials by default, and store what comes out."""

import os
import re
import resource
import sys
from pathlib import Path
from unittest import mock

import nbclient
import nbformat

ROOT = Path(__file__).parents[1]
SECONDS = 90  # of the processors, that one notebook may take: a busy machine makes none longer
PATIENCE = 400  # seconds by the clock until a cell is given up
TUTORIALS = sorted((ROOT / "tutorials").glob("*.ipynb"))
# one thread, so that sums are added in the same order on each machine; no colours in what programs print
SETTINGS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "NO_COLOR": "1"}


def read(path):
    return nbformat.read(path, as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def solutions(notebook):
    """The Python code of the folded solutions."""
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    folded = re.findall(r"<details>.*?</details>", text, re.DOTALL)
    return [code for part in folded for code in re.findall(r"```python\n(.*?)```", part, re.DOTALL)]


def run(path, further=()):
    """Return a notebook as it is after a run, with cells of `further` code behind its own, and the processors' seconds.

    A cell that raises ends it by an exception, unless it is tagged raises-exception.
    """
    notebook = read(path)
    notebook.cells += [nbformat.v4.new_code_cell(code) for code in further]
    client = nbclient.NotebookClient(
        notebook,
        timeout=PATIENCE,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(path.parent)}},
    )
    inherited = os.environ.get("PYTHONPATH", "")
    before = _spent()
    with mock.patch.dict(os.environ, SETTINGS, PYTHONPATH=os.pathsep.join(filter(None, [str(ROOT), inherited]))):
        client.execute()
    return notebook, _spent() - before


def _spent():
    """Seconds that ended child processes, with theirs, have taken of the processors."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def store(path):
    """Run a notebook and write it back with its outputs; of its metadata, what says the same on every machine."""
    notebook, seconds = run(path)
    for cell in code_cells(notebook):
        cell.outputs = _joined(cell.outputs)
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    nbformat.write(notebook, path)
    return seconds


def _joined(outputs):
    """Pieces of one stream become one output: how it came in pieces is chance."""
    joined = []
    for output in outputs:
        if joined and output.output_type == "stream" and joined[-1].get("name") == output.name:
            joined[-1].text += output.text
        else:
            joined.append(output)
    return joined


if __name__ == "__main__":
    for named in [Path(name) for name in sys.argv[1:]] or TUTORIALS:
        print(f"{named.name:40} {store(named.resolve()):5.1f} s", flush=True)
