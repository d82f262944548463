"""One step of Signum on one rank and one thread, against torch's SGD with momentum on the same gradients."""

import math
import time

import harness  # before the others: it limits their threads
import torch
from resnet50 import NUMEL, Shape, shapes, size

import mpisign
from mpisign import kernels
from mpisign.comm import Comm

SIGNUM, FOREACH, FUSED = "mpisign.Signum", "torch SGD, foreach=True", "torch SGD, fused=True"
TINY: list[Shape] = [(10,)] * 161
CALLS = 20  # tiny steps a round
LR = 1e-6

Candidates = dict[str, torch.optim.Optimizer]


def optimizers(of: list[Shape], comm: Comm) -> Candidates:
    """Return the candidates, all on the same parameters and gradients: where memory lies can change its speed by a fifth."""
    random = torch.Generator().manual_seed(0)
    parameters = [torch.nn.Parameter(torch.randn(shape, generator=random)) for shape in of]
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, generator=random)
    return {
        SIGNUM: mpisign.Signum(parameters, lr=LR, momentum=0.9, comm=comm),
        FOREACH: torch.optim.SGD(parameters, lr=LR, momentum=0.9, foreach=True),
        FUSED: torch.optim.SGD(parameters, lr=LR, momentum=0.9, fused=True),
    }


def compare(title: str, candidates: Candidates, repeats: int, calls: int = 1) -> harness.Comparison:
    """Time the candidates' steps."""
    comparison = harness.Comparison(title, FOREACH)
    for name, optimizer in candidates.items():
        comparison.add(name, optimizer.step, calls=calls)
    comparison.measure(repeats)
    return comparison


def phases(record: harness.Record, optimizer: mpisign.Signum, steps: int) -> None:
    """Show where the seconds of a step go, by the optimizer's own stopwatch: the fastest of further steps."""
    fastest = math.inf
    for _ in range(steps):
        optimizer.watch.seconds.clear()
        started = time.perf_counter()
        optimizer.step()
        whole = time.perf_counter() - started
        if whole < fastest:
            fastest, found = whole, dict(optimizer.watch.seconds)
            found["outside any phase"] = whole - sum(found.values())
    for phase, seconds in found.items():
        print(f"{SIGNUM}, {phase:18} {seconds * 1e3:8.3f} ms")
    print()
    record.figure("seconds_by_phase", found)


def body(comm: Comm, record: harness.Record, numel: int, repeats: int) -> None:
    """All comparisons, on one rank."""
    harness.one_thread()
    kernels.warm_up()
    whole = shapes(numel)
    candidates = optimizers(whole, comm)
    comparison = compare(f"step, {len(whole)} tensors of {sum(map(size, whole))}", candidates, repeats)
    record.compare(comparison)
    record.check(f"step: time against {FOREACH}", comparison.ratio(SIGNUM), "≤", 0.85)
    record.check(f"step: time against {FUSED}", comparison.ratio(SIGNUM, FUSED), "≤", 1.1)
    record.figure("parameters", sum(map(size, whole)))
    record.figure("tensors", len(whole))
    signum = candidates[SIGNUM]
    assert isinstance(signum, mpisign.Signum)
    phases(record, signum, repeats)
    record.compare(compare(f"step, {len(TINY)} tensors of 10: overhead", optimizers(TINY, comm), repeats, CALLS))


def main() -> None:
    """Run on one rank, without MPI."""
    settings = harness.parser("step", __doc__, repeats=15, numel=NUMEL).parse_args()
    record = harness.Record("step", settings)
    mpisign.simulate(1, body, record, settings.numel, settings.repeats)
    record.close()


if __name__ == "__main__":
    main()
