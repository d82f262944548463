"""Tutorials keep to their rules, run from top to bottom, and the outputs stored in them are those of the present code."""

import re

import pytest

pytest.importorskip("nbclient", reason="no nbclient here: pip install 'mpisign[tutorials]'")
pytest.importorskip("ipykernel", reason="no ipykernel here: pip install 'mpisign[tutorials]'")
pytest.importorskip("matplotlib", reason="no matplotlib here: pip install 'mpisign[tutorials]'")

from notebooks import ROOT, SECONDS, TUTORIALS, code_cells, read, run, solutions

from mpisign.notebook.launch import find_mpiexec

MOST_CELLS, MOST_LINES = 15, 10

each_notebook = pytest.mark.parametrize("path", TUTORIALS, ids=[path.stem for path in TUTORIALS])


def printed(cell):
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")


def shown(cell):
    """The kinds of what a cell shows besides text: image/png for a picture."""
    return [sorted(output.data) for output in cell.outputs if "data" in output]


def values(cell):
    """What a cell shows as text, but for a picture's size and the address of an object."""
    texts = [output.data.get("text/plain", "") for output in cell.outputs if output.output_type == "execute_result"]
    return [text for text in texts if " at 0x" not in text]


def errors(cell):
    return [(output.ename, output.evalue) for output in cell.outputs if output.output_type == "error"]


def tags(cell):
    return cell.metadata.get("tags", [])


def wants_mpi(cell):
    return cell.source.startswith("%%mpirun")


def test_there_are_tutorials():
    assert TUTORIALS


@pytest.mark.slow
@each_notebook
def test_a_tutorial_and_its_solutions_run_and_what_comes_out_is_what_is_stored(path):
    stored = code_cells(read(path))
    fresh, seconds = run(path, solutions(read(path)))
    assert seconds < SECONDS
    for old, new in zip(stored, code_cells(fresh), strict=False):  # the solutions come behind
        if wants_mpi(old) and find_mpiexec() is None:
            continue  # it says what to install
        assert shown(old) == shown(new), old.source
        if "varies" not in tags(old):  # a cell whose output has seconds in it
            assert (printed(old), values(old), errors(old)) == (printed(new), values(new), errors(new)), old.source


@each_notebook
def test_the_outputs_of_a_whole_run_are_stored(path):
    cells = code_cells(read(path))
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert any("image/png" in output.get("data", {}) for cell in cells for output in cell.outputs), "no drawing"
    for cell in cells:
        assert bool(errors(cell)) == ("raises-exception" in tags(cell)), cell.source
    assert not any(output.get("name") == "stderr" for cell in cells for output in cell.outputs)


@each_notebook
def test_no_stored_output_names_a_folder_of_the_machine_it_ran_on(path):
    for cell in code_cells(read(path)):
        texts = [output.get("text", "") + output.get("data", {}).get("text/plain", "") for output in cell.outputs]
        texts += [line for output in cell.outputs for line in output.get("traceback", [])]
        assert not re.search(r"(^|[\s'\"(])/\w+/", "\n".join(texts)), cell.source


@each_notebook
def test_a_tutorial_is_short(path):
    cells = code_cells(read(path))
    assert len(cells) <= MOST_CELLS
    for cell in cells:
        assert len(cell.source.splitlines()) <= MOST_LINES, cell.source


@each_notebook
def test_a_cell_is_stored_without_what_changes_with_each_run(path):
    notebook = read(path)
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    assert [set(cell.metadata) - {"tags"} for cell in notebook.cells] == [set()] * len(notebook.cells)


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


def test_the_lines_for_slurm_that_are_explained_are_those_of_the_batch_file():
    (path,) = (path for path in TUTORIALS if path.stem == "08_on_the_cluster")
    said = "\n".join(cell.source for cell in read(path).cells)
    explained = re.findall(r"^#SBATCH .*", said, re.MULTILINE)
    assert explained
    assert set(explained) <= set((ROOT / "slurm" / "cpu.sbatch").read_text().splitlines())


@each_notebook
def test_the_readme_names_the_tutorial(path):
    assert f"({path.name})" in (path.parent / "README.md").read_text()
