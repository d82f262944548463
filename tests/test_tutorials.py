import os
import re
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="no nbformat here: pip install 'mpisign[tutorials]'")

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "tutorials").glob("*.ipynb"))
MOST_CELLS, MOST_LINES, SECONDS = 15, 10, 120

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])


def read(path):
    return nbformat.read(path, as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def solutions(notebook):
    """The Python code of the folded solutions."""
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    folded = re.findall(r"<details>.*?</details>", text, re.DOTALL)
    return [code for part in folded for code in re.findall(r"```python\n(.*?)```", part, re.DOTALL)]


def printed(cell):
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")


def shown(cell):
    """The kinds of what a cell shows besides text: image/png for a picture."""
    return [sorted(output.data) for output in cell.outputs if "data" in output]


@pytest.fixture(scope="session")
def run():
    """Run a notebook with its solutions behind it, once, and return it as it then is."""
    nbclient = pytest.importorskip("nbclient", reason="no nbclient here: pip install 'mpisign[tutorials]'")
    for module in ("ipykernel", "matplotlib"):
        pytest.importorskip(module, reason=f"no {module} here: pip install 'mpisign[tutorials]'")
    done = {}

    def run_once(path):
        if path not in done:
            notebook = read(path)
            notebook.cells += [nbformat.v4.new_code_cell(code) for code in solutions(notebook)]
            client = nbclient.NotebookClient(
                notebook, timeout=SECONDS, kernel_name="python3", resources={"metadata": {"path": str(path.parent)}}
            )
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
                done[path] = client.execute()
        return done[path]

    return run_once


def test_there_are_tutorials():
    assert NOTEBOOKS


@pytest.mark.slow
@each_notebook
def test_a_tutorial_and_its_solutions_run_from_top_to_bottom(path, run):
    assert run(path)


@pytest.mark.slow
@each_notebook
def test_the_stored_outputs_are_those_of_the_present_code(path, run):
    stored = code_cells(read(path))
    for old, new in zip(stored, code_cells(run(path)), strict=False):  # the solutions come behind
        assert shown(old) == shown(new), old.source
        if "varies" not in old.metadata.get("tags", []):  # a cell whose output has seconds in it
            assert printed(old) == printed(new), old.source


@each_notebook
def test_the_outputs_of_a_whole_run_are_stored(path):
    cells = code_cells(read(path))
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert any("image/png" in output.get("data", {}) for cell in cells for output in cell.outputs), "no drawing"
    assert not any(output.output_type == "error" for cell in cells for output in cell.outputs)
    assert not any(output.get("name") == "stderr" for cell in cells for output in cell.outputs)


@each_notebook
def test_no_stored_output_names_a_folder_of_the_machine_it_ran_on(path):
    for cell in code_cells(read(path)):
        texts = [output.get("text", "") + output.get("data", {}).get("text/plain", "") for output in cell.outputs]
        assert not re.search(r"(^|[\s'\"(])/\w+/", "\n".join(texts)), cell.source


@each_notebook
def test_a_tutorial_is_short(path):
    cells = code_cells(read(path))
    assert len(cells) <= MOST_CELLS
    for cell in cells:
        assert len(cell.source.splitlines()) <= MOST_LINES, cell.source


@each_notebook
def test_prose_stands_before_the_first_code(path):
    assert read(path).cells[0].cell_type == "markdown"


@each_notebook
def test_the_last_code_cell_asserts_what_was_claimed(path):
    assert re.search(r"^assert ", code_cells(read(path))[-1].source, re.MULTILINE)


@each_notebook
def test_there_are_two_exercises_whose_solutions_check_themselves(path):
    found = solutions(read(path))
    assert len(found) == 2
    assert all("assert " in code for code in found)


@each_notebook
def test_the_readme_names_the_tutorial(path):
    assert f"({path.name})" in (path.parent / "README.md").read_text()
