"""The walls of docs/design.md, each a line here."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import mpisign

PACKAGE = Path(mpisign.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

LAYERS = [  # a file may import from its own layer and those before it
    {
        "errors",
        "command_line",
        "seeding",
        "timing",
        "reference",
        "theory",
        "wire_format",
        "problems",
        "quadratics",
        "tuning",
        "dip",
        "noise",
        "schedules",
        "faults",
        "__init__",
    },
    {"kernels", "registry"},
    {"config", "devices", "environment", "topology", "comm", "codecs", "aggregators", "checkpoints"},
    {"tasks", "collectives", "options", "plotting", "attacks", "overhearing", "quarantine"},
    {"algorithms", "tracking", "tensorboard"},
    {"assembly", "testing"},
    {"evaluation", "lies", "batches", "resuming", "survival"},
    {"figures"},
    {"session"},
    {"training"},
    {"train", "doctor", "notebook", "report"},
]


def layer_of(part: str) -> int:
    found = [number for number, parts in enumerate(LAYERS) if part in parts]
    assert found, f"{part} stands in no layer: add it to LAYERS"
    return found[0]


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """The full names of all modules that a file imports, wherever in it."""
    inside = ("mpisign", *path.relative_to(PACKAGE).with_suffix("").parts)
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(inside[: -node.level]) if node.level else ""
            module = ".".join(filter(None, (base, node.module)))
            names |= {f"{module}.{alias.name}" for alias in node.names} | {module}
    return names


def importers(name: str) -> set[str]:
    return {
        str(path.relative_to(PACKAGE))
        for path in FILES
        if any(found == name or found.startswith(f"{name}.") for found in imports(path))
    }


def test_only_comm_and_the_doctor_import_mpi4py() -> None:
    assert importers("mpi4py") == {"comm/mpi.py", "comm/awareness.py", "comm/probing.py", "doctor/mpi.py"}


def test_only_the_kernels_import_numba() -> None:
    on_gpu = {f"kernels/cuda/{name}.py" for name in ("counting", "launching", "memory", "norms", "signs")}
    assert importers("numba") == {"kernels/cpu.py", "kernels/quantise.py"} | on_gpu
    assert importers("llvmlite") == {"kernels/cpu.py", "kernels/cuda/memory.py"}


def test_nothing_is_loaded_by_what_could_run_code() -> None:
    for name in ("marshal", "shelve", "dill", "cloudpickle", "joblib", "_pickle"):
        assert not importers(name), name
    assert importers("pickle") == {"tasks/images.py"}  # torchvision's files, by a class that calls nothing
    names = {ast.unparse(node) for node in _attributes(PACKAGE / "tasks" / "images.py") if _of(node) == "pickle"}
    assert names == {"pickle.Unpickler", "pickle.UnpicklingError"}
    for path in FILES:
        for call in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
            said = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
            if ast.unparse(call.func) == "torch.load":
                assert said.get("weights_only") == "True", path.name
            assert said.get("allow_pickle", "False") == "False", path.name


def _attributes(path: Path) -> list[ast.Attribute]:
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)]


def _of(node: ast.Attribute) -> str:
    return ast.unparse(node.value)


def test_only_a_tensor_on_a_gpu_makes_the_kernels_import_numba_cuda() -> None:
    program = "import sys, mpisign.train; assert mpisign.train.main(['--simulate', '2', '--steps', '1']) == 0;"
    program += (
        "sys.exit(', '.join(m for m in sys.modules if m.startswith(('numba.cuda', 'mpisign.kernels.cuda'))) or None)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_only_the_buffers_and_the_kernels_know_of_streams() -> None:
    known = {
        str(path.relative_to(PACKAGE)) for path in FILES if re.search("current_stream|wait_event", path.read_text())
    }
    assert known == {"comm/buffers.py", "kernels/cuda/launching.py"}


@pytest.mark.parametrize("part", ["kernels", "topology", "codecs", "aggregators", "checkpoints"])
def test_kernels_and_topologies_know_no_communicator(part: str) -> None:
    assert not [name for name in importers("mpisign.comm") if name.startswith(part)]


def test_algorithms_know_no_files_no_clock_and_no_command_line() -> None:
    for module in ("time", "pathlib", "os", "sys", "argparse", "mpisign.config"):
        assert not [name for name in importers(module) if name.startswith("algorithms")], module


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_only_downwards(path: Path) -> None:
    own = layer_of(part_of(path))
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "mpisign" and len(parts) > 1 and path != PACKAGE / "__init__.py":
            target = parts[1]
            if (PACKAGE / target).is_dir() or (PACKAGE / f"{target}.py").is_file():
                assert layer_of(target) <= own, f"{path.name} imports {name}, which stands above it"


def test_importing_the_package_does_no_work() -> None:
    heavy = "{'torch', 'numba', 'mpi4py', 'numpy', 'sklearn', 'matplotlib', 'torchvision'}"
    program = f"import sys, mpisign, mpisign.train; sys.exit(', '.join({heavy} & set(sys.modules)) or None)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_training_rank_imports_only_what_it_uses() -> None:
    heavy = "{'sklearn', 'matplotlib', 'torchvision', 'pandas', 'pytest', 'torch._dynamo', 'sympy'}"
    program = (
        "import sys, mpisign.train; assert mpisign.train.main(['--simulate', '2', '--steps', '1']) == 0;"
        f"sys.exit(', '.join({heavy} & set(sys.modules)) or None)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", mpisign.__all__)
def test_every_public_name_is_there_and_documented(name: str) -> None:
    assert getattr(mpisign, name).__doc__
