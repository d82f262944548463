"""One rank of a whole step of Signum over MPI, with everything on one device; `gpu.py` starts 1, 2 and 4 of them.

    mpirun -n 2 python benchmarks/gpu_step.py --way staged --device cuda --numel 25557032 --steps 20

Rank 0 prints one line of JSON: the median seconds of a step from packing to descent, and a checksum of the parameters, which is
the same for every way and device. `--way aware` gives MPI addresses of GPU memory: try `python -m mpisign.doctor` first.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import harness  # noqa: F401 - before the others: it limits their threads
import torch
from resnet50 import NUMEL, shapes

from mpisign import devices, environment
from mpisign.algorithms.signum import Signum
from mpisign.algorithms.weights import checksum


def main() -> None:
    """Take steps with gradients that are there already: what is timed is the optimizer's step alone."""
    flags = argparse.ArgumentParser("gpu_step", description=__doc__)
    flags.add_argument("--way", choices=("staged", "aware"), default="staged")
    flags.add_argument("--device", default="cuda")
    flags.add_argument("--numel", type=int, default=NUMEL)
    flags.add_argument("--steps", type=int, default=20)
    flags.add_argument("--found", type=Path, help="write the line there")
    settings = flags.parse_args()
    choice = devices.choose(settings.device, environment.launched())  # before MPI starts
    choice.check()
    from mpisign.comm import world

    comm, device = world(), torch.device(choice.name)
    random = torch.Generator().manual_seed(comm.rank)
    model = [torch.nn.Parameter(torch.zeros(shape, device=device)) for shape in shapes(settings.numel)]
    for p in model:
        p.grad = torch.randn(p.shape, generator=random).to(device)
    optimizer = Signum(model, vote="server", cuda_aware=settings.way == "aware", comm=comm)
    seconds = []
    for step in range(settings.steps + 3):
        comm.barrier()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        started = time.perf_counter()
        optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        if step >= 3:  # the first ones compile and allocate
            seconds.append(time.perf_counter() - started)
    if comm.rank == 0:
        found = {"seconds": statistics.median(seconds), "checksum": f"{checksum(model):014x}", "ranks": comm.size}
        (print if settings.found is None else settings.found.write_text)(json.dumps(found))


if __name__ == "__main__":
    main()
