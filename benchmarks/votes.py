"""One reduction by vote, from the gradient to the changed parameters, against all-reduces of float32; and where votes cross.

Each job runs under mpirun on this machine. Time is rank 0's; all ranks take each round together.
"""

import argparse
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import harness  # before the others: it limits their threads
import numpy as np
import torch
from startup import launch, mpirun

from mpisign import kernels, registry
from mpisign.comm import Comm
from mpisign.timing import Stopwatch

RESNET_50 = 25_600_000
VOTES = ("server", "sharded", "hierarchical", "tree")
BY_MPI, BY_GLOO = "MPI_Allreduce, float32", "gloo all-reduce, float32"


def reduction(comm: Comm, vote: str, numel: int) -> tuple[Callable[[], object], Stopwatch]:
    """Return what packs a gradient, votes and descends, and its watch."""
    layout, watch, one = kernels.Layout([numel]), Stopwatch(), np.ones(1, np.float32)
    random = torch.Generator().manual_seed(comm.rank)
    gradient, parameter = torch.randn(numel, generator=random), torch.zeros(numel)
    ballot = torch.zeros(layout.message, dtype=torch.uint64)
    count = registry.load("vote", vote)(comm, layout, watch=watch)

    def run() -> None:
        with watch("pack"):
            kernels.sign_ballot(layout, [gradient], None, one, one, "plus", 0, ballot)
        verdict = count(ballot, 0)
        with watch("apply"):
            kernels.descend([parameter], verdict, one, one)

    return run, watch


def dense(numel: int) -> dict[str, Callable[[], object]]:
    """Return the all-reduces of float32, of MPI itself and of torch's gloo."""
    from mpi4py import MPI

    vector = torch.ones(numel)
    array = vector.numpy()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    world = MPI.COMM_WORLD
    store = world.bcast(tempfile.mkdtemp() if world.rank == 0 else None)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}/store", rank=world.rank, world_size=world.size
    )

    def by_mpi() -> None:
        world.Allreduce(MPI.IN_PLACE, array)

    def by_gloo() -> None:
        torch.distributed.all_reduce(vector)

    return {BY_MPI: by_mpi, BY_GLOO: by_gloo}


def rank(settings: argparse.Namespace) -> None:
    """Measure as one rank; rank 0 writes what came."""
    from mpisign import MPIComm

    harness.one_thread()
    comm = MPIComm()
    comparisons: list[harness.Comparison] = []
    watches = {}
    for numel in settings.numels:
        comparison = harness.Comparison(
            f"{comm.size} ranks, {numel:,} coordinates", BY_MPI if settings.dense else VOTES[0]
        )
        calls = max(1, min(20, 2_000_000 // numel))
        for vote in VOTES:
            run, watches[vote] = reduction(comm, vote, numel)
            comparison.add(vote, run, calls=calls)
        for name, run in dense(numel).items() if settings.dense else ():
            comparison.add(name, run)
        comparison.measure(settings.repeats)
        comparisons.append(comparison)
    if comm.rank == 0:
        Path(settings.worker).write_text(
            json.dumps([{"title": c.title, "baseline": c.baseline, "seconds": c.seconds} for c in comparisons])
        )
        for vote, watch in watches.items() if settings.dense else ():
            print(vote, {phase: round(seconds, 3) for phase, seconds in watch.seconds.items()})
    if settings.dense:
        torch.distributed.destroy_process_group()


def measured(ranks: int, settings: argparse.Namespace, numels: list[int], dense: bool) -> list[harness.Comparison]:
    """Launch a job and return its comparisons."""
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/seconds.json"
        own = [__file__, "--worker", file, "--repeats", str(settings.repeats), "--numels", *map(str, numels)]
        launch(ranks, own + ["--dense"] * dense, settings.timeout)
        found = []
        for entry in json.loads(Path(file).read_text()):
            comparison = harness.Comparison(entry["title"], entry["baseline"])
            for name, seconds in entry["seconds"].items():
                for one in seconds:
                    comparison.record(name, one)
            found.append(comparison)
        return found


def main() -> None:
    """Compare with all-reduces at 2 ranks, then votes with one another at several numbers of ranks and sizes."""
    flags = harness.parser("votes", __doc__, repeats=7, numel=RESNET_50)
    flags.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 16], metavar="N", help="default: 2 4 16")
    flags.add_argument("--timeout", type=float, default=300.0, metavar="SECONDS", help="for each job (default: 300)")
    flags.add_argument("--numels", type=int, nargs="+", default=[10_000, 100_000, 1_000_000], metavar="N")
    flags.add_argument("--worker", metavar="FILE", help=argparse.SUPPRESS)
    flags.add_argument("--dense", action="store_true", help=argparse.SUPPRESS)
    settings = flags.parse_args()
    if settings.worker:
        rank(settings)
        return
    record = harness.Record("votes", settings)
    record.figure("mpi", harness.first_line([mpirun(), "--version"]))
    (big,) = measured(2, settings, [settings.numel], dense=True)
    record.compare(big)
    for baseline, target in ((BY_MPI, 2.5), (BY_GLOO, 1.5)):
        record.check(f"sharded, 2 ranks: speed against {baseline}", 1 / big.ratio("sharded", baseline), "≥", target)
    for ranks in settings.ranks:
        for comparison in measured(ranks, settings, settings.numels, dense=False):
            record.compare(comparison)
    record.close()


if __name__ == "__main__":
    main()
