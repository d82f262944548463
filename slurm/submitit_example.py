"""Jobs from Python, by submitit: `python slurm/submitit_example.py --nodes 2 --ranks-per-node 8 -- --task digits --epochs 5`.

submitit (`pip install submitit`) pickles a callable, writes the batch file and starts the callable by srun, once for each
rank. Whatever follows -- are options of `python -m mpisign.train`.
"""

import argparse
import json
import os
from pathlib import Path
from typing import Any

import mpi4py
import submitit


class Training:
    """One run; every rank calls it. After preemption submitit asks rank 0 for `checkpoint` and submits that again."""

    def __init__(self, output: Path, options: list[str]) -> None:
        self.output, self.options = output, options

    def __call__(self) -> dict[str, Any]:
        """Train, and return the figures of summary.json."""
        from mpisign import train

        code = train.main(["--output", str(self.output), *self.options])
        if code:
            raise SystemExit(code)
        summary = self.output / "summary.json"
        return json.loads(summary.read_text()) if summary.exists() else {}  # rank 0 writes it when it is done

    def checkpoint(self) -> submitit.helpers.DelayedSubmission:
        """What to run next; with the option --resume auto it goes on from the last checkpoint."""
        return submitit.helpers.DelayedSubmission(self)


def language_of_mpi() -> str:
    """Return what srun must speak with this Python's MPI, without starting MPI."""
    mpi4py.rc.initialize = False
    from mpi4py import MPI

    return "pmix" if MPI.get_vendor()[0] == "Open MPI" else "pmi2"


def main() -> None:
    """Submit one run, wait for it and print its accuracy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--ranks-per-node", type=int, default=8)
    parser.add_argument("--minutes", type=int, default=10)
    parser.add_argument("--partition", default=None)
    parser.add_argument("--output", type=Path, default=Path("runs/submitit"))
    parser.add_argument("options", nargs="*")
    chosen = parser.parse_args()

    executor = submitit.AutoExecutor(folder=chosen.output / "submitit", cluster="slurm")
    executor.update_parameters(
        nodes=chosen.nodes,
        tasks_per_node=chosen.ranks_per_node,
        cpus_per_task=1,
        timeout_min=chosen.minutes,
        slurm_partition=chosen.partition,
        slurm_srun_args=[f"--mpi={language_of_mpi()}"],
        # as in env.sh: compiled kernels on the node's own disk
        slurm_setup=[f"export NUMBA_CACHE_DIR=${{SLURM_TMPDIR:-${{TMPDIR:-/tmp}}}}/mpisign-numba-{os.getuid()}"],
    )
    job = executor.submit(Training(chosen.output.absolute(), chosen.options))
    print(f"job {job.job_id}: {job.paths.stdout}")
    print(
        f"test accuracy {job.results()[0]['test_accuracy']:.4f}"
    )  # of rank 0; submitit asks sacct when a job has ended


if __name__ == "__main__":
    main()
