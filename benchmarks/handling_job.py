"""One rank of a job that trains again and again, by turns with each of some handlings of failures; `handling.py` starts them.

    mpirun -n 6 python benchmarks/handling_job.py none quorum checkpoints --found found.json

Rank 0 writes the seconds a step of each training. Handlings that share a job share its processes, their places on the cores
and their memory, which differ more between jobs than handlings do.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import harness  # noqa: F401 - before the others: it limits their threads
import torch

from mpisign.comm import Comm, MPIComm
from mpisign.options import parse
from mpisign.tracking import Tracker
from mpisign.training import train

HANDLINGS = ("none", "quorum", "checkpoints", "ULFM", "ULFM and checkpoints")


def communicator(kind: str) -> Comm:
    """Return what a handling needs of all ranks; the last two want Open MPI's mpirun --with-ft ulfm."""
    if kind == "quorum":
        from mpisign.comm.quorum import QuorumComm

        return QuorumComm(quorum=0.5, timeout=120)
    if kind == "ULFM":
        from mpisign.comm.resilient import ResilientComm

        return ResilientComm()
    return MPIComm()


def seconds_a_step(comm: Comm, flags: list[str]) -> float:
    """Train once, and return the time of its steps without its evaluations: messages, agreements, copies and all."""
    found = train(comm, parse(flags), Tracker())[0]
    return float((found["seconds"] - found["seconds_by_phase"]["evaluate"]) / found["steps"])


def main() -> None:
    """Train, each round beginning with another handling; one round before is not counted."""
    flags = argparse.ArgumentParser("handling_job", description=__doc__)
    flags.add_argument("handlings", nargs="+", choices=HANDLINGS)
    flags.add_argument("--repeats", type=int, default=5, metavar="N", help="rounds (default: 5)")
    flags.add_argument("--steps", type=int, default=400, metavar="N", help="of each training (default: 400)")
    flags.add_argument("--batch-size", type=int, default=16, metavar="N", help="of each rank (default: 16)")
    flags.add_argument("--found", type=Path, required=True, metavar="FILE", help="write the seconds there")
    settings = flags.parse_args()
    names: list[str] = settings.handlings
    torch.set_num_threads(1)
    kinds = {name: name.split()[0] for name in names}
    comms: dict[str, Any] = {kind: communicator(kind) for kind in dict.fromkeys(kinds.values())}
    same = [f"--steps={settings.steps}", f"--epochs={settings.steps}", f"--batch-size={settings.batch_size}"]
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(-1, settings.repeats):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            own = [f"--output={settings.found.parent / f'{name} {turn}'}", "--checkpoint-every=100"]
            took = seconds_a_step(comms[kinds[name]], same + own * ("checkpoints" in name))
            if turn >= 0:
                seconds[name].append(took)
    for kind, comm in comms.items():
        if comm.rank == 0 and kind == kinds[names[0]]:
            settings.found.write_text(json.dumps(seconds))
        comm.leave(0)  # MPI_Finalize can wait for ever where MPI outlives its ranks


if __name__ == "__main__":
    main()
