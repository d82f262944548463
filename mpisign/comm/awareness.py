"""Whether this MPI may be given addresses of GPU memory: found out by trying it, in processes that may die of it.

Its vendor's name, and what it says of itself, say nothing of a certain build with certain transports. A wrong guess is a
segmentation fault, or other bytes. So two ranks of the machine's own try each operation (`probing`), never those of the job.
"""

import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import EnvironmentProblem

SECONDS = 60.0
"""What a probe may take; torch is imported in it."""

_OF_A_LAUNCHER = (
    "PMI_",
    "PMIX_",
    "OMPI_COMM_",
    *(f"OMPI_MCA_{name}" for name in ("ess", "orte", "PREFIXES", "cpu_type", "initial_wdir", "num_procs")),
    "MPI_LOCAL",
    "HYDRA_",
    "HYDI_",
    "SLURM_",
)
_ABOUT_GPUS = ("MPICH_", "MPIR_CVAR_", "MV2_", "MVP_", "OMPI_MCA_", "UCX_", "FI_", "CUDA_VISIBLE_DEVICES")
_STARTING = {  # two ranks on one core, and as root: Open MPI refuses both unless told
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": "slot:oversubscribe",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
}


@dataclass(frozen=True)
class Answer:
    """What a probe has found: whether MPI takes GPU memory, None where it could not be tried; and why."""

    aware: bool | None
    reason: str


def consult(
    device: str,
    program: Sequence[str] = (sys.executable, "-m", "mpisign.comm.probing"),
    seconds: float = SECONDS,
    environ: Mapping[str, str] = os.environ,
) -> Answer:
    """Return what is remembered of this MPI, host and driver, or else probe and remember it. Not collective.

    To be called before MPI_Init: some transports don't bear that a process that uses them starts another.

    Args:
        device: the GPU whose memory is used, as in "cuda:0".
        program: what the two ranks run, with `probing`'s arguments; what it leaves in its folder counts.
        seconds: after so many it counts as hanging.
        environ: the variables.
    """
    file, key = _cache(environ), _key(device, environ)
    remembered = _read(file).get(key)
    if isinstance(remembered, dict) and isinstance(remembered.get("aware"), bool):
        return Answer(remembered["aware"], f"{remembered.get('reason')}; remembered in {file}")
    answer = probe(device, program, seconds, environ)
    if answer.aware is not None:
        _remember(file, key, answer)
    return answer


def decide(wanted: str, answer: Answer) -> bool:
    """Tell whether to give MPI addresses. EnvironmentProblem where that is not so as the user said.

    "yes" is the user's word where nothing could be tried, but no word against what was found. With "probe" a problem is a
    remark: go on with copies.
    """
    if answer.aware is None and wanted == "yes":
        return True
    if not answer.aware:
        unknown = "it could not be tried whether" if answer.aware is None else "no:"
        raise EnvironmentProblem(
            f"--cuda-aware {wanted}: {unknown} this MPI takes GPU memory ({answer.reason}); leave it out, or let it be no, and "
            f"messages are copied through pinned memory"
        )
    return True


def probe(device: str, program: Sequence[str], seconds: float, environ: Mapping[str, str]) -> Answer:
    """Let two ranks of their own try, on this host."""
    places = (str(Path(sys.executable).parent), environ.get("PATH", os.defpath))
    mpirun = shutil.which("mpirun", path=os.pathsep.join(places))
    if mpirun is None:
        return Answer(None, "there is no mpirun to start a pair of ranks with")
    own = {name: value for name, value in environ.items() if not name.startswith(_OF_A_LAUNCHER)}
    with tempfile.TemporaryDirectory(prefix="mpisign-probe-", ignore_cleanup_errors=True) as folder:
        command = [mpirun, "-n", "2", *program, device, str(int(seconds) + 1), folder]
        code, said = _run(command, _STARTING | own, seconds)
        return _judge(code, said, seconds, Path(folder))


def _judge(code: int | None, said: str, seconds: float, marks: Path) -> Answer:
    """Say what the marks mean that the ranks have left; of what they print, a launcher drops the end when one of them dies."""
    wrong = [file.read_text() for file in marks.glob("wrong.*")]
    if wrong:
        return Answer(False, f"other bytes came than were sent, by {wrong[0]}")
    if code == 0 and len([*marks.glob("passed.*")]) == 2:
        return Answer(True, "each operation brought the right bytes, between two ranks of this host")
    hung, exit_code = f"no end after {seconds:g} s", f"exit code {code}"
    if not [*marks.glob("control.*")]:
        last = ([line for line in said.splitlines() if line.strip()] or ["nothing"])[-1][:200]
        return Answer(
            None, f"no pair of ranks works here: {hung if code is None else exit_code}, its last line: {last}"
        )
    return Answer(False, f"the probe hung, {hung}" if code is None else f"the probe crashed, {exit_code}")


def _run(command: Sequence[str], environ: Mapping[str, str], seconds: float) -> tuple[int | None, str]:
    """Return the exit code, None where time was up, and what was printed; nothing is left running."""
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, start_new_session=True, env=environ
        )  # fmt: skip
        try:
            code: int | None = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
            _end(process)
        said.seek(0)
        return code, said.read()


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()  # mpirun ends its ranks, which need not be in its process group; they have an alarm besides
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


# What is remembered: a file of answers by what they depend on


def _key(device: str, environ: Mapping[str, str]) -> str:
    """Library, host, driver, device, and the variables that switch GPU support on and off."""
    driver = Path("/proc/driver/nvidia/version")
    switches = {name for name in environ if name.startswith(_ABOUT_GPUS) and not name.startswith(_OF_A_LAUNCHER)}
    parts = [
        library_version(),
        sys.executable,
        platform.node(),
        driver.read_text() if driver.exists() else "no driver",
        device,
        *(f"{name}={environ[name]}" for name in sorted(switches)),
    ]
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()


def library_version() -> str:
    """What MPI says of its version, without starting it; or why it says nothing."""
    try:
        import mpi4py

        wanted, mpi4py.rc.initialize = mpi4py.rc.initialize, False
        from mpi4py import MPI

        mpi4py.rc.initialize = wanted
        return MPI.Get_library_version()
    except (ImportError, RuntimeError) as error:
        return f"no MPI ({error})"


def _cache(environ: Mapping[str, str]) -> Path:
    home = environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "mpisign" / "cuda-aware.json"


def _read(file: Path) -> dict[str, object]:
    try:
        found = json.loads(file.read_text())
    except (OSError, ValueError):  # none yet, or damaged: it is only a memory
        return {}
    return found if isinstance(found, dict) else {}


def _remember(file: Path, key: str, answer: Answer) -> None:
    """Write all answers anew and put them in the old ones' place at once: readers see whole files."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=file.parent)
        with os.fdopen(descriptor, "w") as fresh:
            json.dump(_read(file) | {key: {"aware": answer.aware, "reason": answer.reason}}, fresh, indent=1)
        os.replace(name, file)
    except OSError:  # no home, a full disk: the next start probes again
        return
