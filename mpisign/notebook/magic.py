"""`%%mpirun`: what a user may ask, and what comes back."""

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from ..errors import ConfigError, RanksFailed
from .launch import Job, Outcome, find_mpiexec, run
from .luggage import pack

_NO_MPIEXEC = """\
There is no mpiexec beside this Python or in PATH, so this cell was left out. The notebook goes on without it.
To run it, on Linux and macOS: pip install 'mpisign[mpich]', then restart the notebook. On Windows: use WSL."""


def mpirun(line: str, cell: str, namespace: dict[str, Any]) -> None:
    """Run a cell as n ranks under MPI, and print what they print, rank by rank.

    Where there is no mpiexec, it says what to install and does nothing more: the notebook goes on.

    Args:
        line: the options: -n RANKS, -t SECONDS (60 by default), --with NAME,NAME, --out NAME.
        cell: the program of every rank.
        namespace: the notebook's variables. Those named by --with are sent to all ranks, functions together with the
            functions, variables and modules that they use; values are tensors, arrays, numbers, text, dicts, lists and
            tuples. The one named by --out becomes a list of that variable's values on the ranks, in order; without an
            mpiexec it becomes None.

    Errors: ConfigError for options that make no sense; RanksFailed where a rank failed, or the time was up.
    """
    options = _parsed(line)
    luggage = pack(options.names.split(",") if options.names else [], namespace)
    mpiexec = find_mpiexec()
    if mpiexec is None:
        print(_NO_MPIEXEC)
        job = None
    else:
        job = run(mpiexec, cell, options.n, options.seconds, luggage, options.out)
        for outcome in job.outcomes:
            _show(outcome)
        _raise_failures(job)
    if options.out:
        namespace[options.out] = job and [outcome.value for outcome in job.outcomes]


class _Parser(argparse.ArgumentParser):
    """Raises where argparse would end the process, which is the notebook's."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"%%mpirun: {message}; {self.format_usage().strip()}")


def _parsed(line: str) -> argparse.Namespace:
    parser = _Parser("%%mpirun", usage="%(prog)s -n RANKS -t SECONDS --with NAME,NAME --out NAME", add_help=False)
    parser.add_argument("-n", type=int, default=4)
    parser.add_argument("-t", dest="seconds", type=float, default=60.0)
    parser.add_argument("--with", dest="names", default="")
    parser.add_argument("--out", default="")
    options = parser.parse_args(line.split())
    if options.n < 1 or not 0 < options.seconds < 86_400:
        parser.error(f"got {line}, wanted -n of 1 or more, and -t above 0 and below a day in seconds")
    if options.out and not options.out.isidentifier():
        parser.error(f"--out wants the name of one variable, got {options.out}")
    return options


def _show(outcome: Outcome) -> None:
    for line in outcome.output.splitlines():
        print(f"rank {outcome.rank} | {line}")


def _raise_failures(job: Job) -> None:
    failed = [outcome for outcome in job.outcomes if outcome.failure]
    if failed:
        raise RanksFailed(_causes(failed, len(job.outcomes)))
    if job.out_of_time:
        places = "\n".join(f"rank {outcome.rank} | {outcome.place}" for outcome in job.outcomes)
        raise RanksFailed(f"the ranks did not end in {job.seconds:g} s, and were stopped here:\n{places}")
    if job.code:
        raise RanksFailed(f"a rank ended without a word; mpiexec ended with code {job.code} and said:\n{job.said}")


def _causes(failed: Sequence[Outcome], size: int) -> str:
    """The first failure in full; those of other ranks are often its consequences, and get a line."""
    first = min(failed, key=lambda outcome: outcome.failure.time if outcome.failure else 0)
    alike = [outcome for outcome in failed if outcome.failure and outcome.failure.summary == first.failure.summary]  # type: ignore[union-attr]
    root = alike[0]  # of those who failed in the same way the lowest rank, so that a run repeats
    lines = [f"rank {root.rank} of {size} failed:\n{root.failure.traceback}"]  # type: ignore[union-attr]
    if alike[1:]:
        lines.append(f"the same happened on rank {', '.join(str(outcome.rank) for outcome in alike[1:])}")
    lines += [f"after that, rank {o.rank}: {o.failure.summary}" for o in failed if o.failure and o not in alike]
    return "\n".join(lines)
