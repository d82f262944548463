"""What a step of RelaySGD costs: bytes and memory along double binary trees, and time with messages that travel aside.

Bytes and memory are counted in the simulator. Time is that of two ranks under mpirun: with messages that arrive a fixed
time after they were sent and take no processor for it, as on a network, and with what MPI does within this machine.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import harness  # before the others: it limits their threads
import torch
from startup import launch, mpirun
from torch import Tensor

import mpisign
from mpisign.comm import Comm, LossyComm, Pending

SIZES = (4, 8, 16, 32, 64)
SYNCHRONOUS, OVERLAPPED = "synchronous", "overlapped"
KINDS = {
    "model": "the model x as one vector, and the update u",
    "optimizer": "momentum of the worker",
    "reference": "what stands for models that have not come yet",
    "sums": "own and received added up, one a tree",
    "received": "last message of each neighbour, to be relayed in the next step",
    "sent": "message to each neighbour, until it has left",
}


class DelayedComm(LossyComm):
    """Another communicator whose posts arrive no earlier than some seconds after they were made; it loses none.

    Args:
        comm: carries the messages.
        seconds: of a message under way.
    """

    def __init__(self, comm: Comm, seconds: float) -> None:
        super().__init__(comm, 0.0)
        self._seconds = seconds

    def post(self, outbox: Mapping[int, Tensor], channel: int = 0, sources: Iterable[int] | None = None) -> Pending:
        """Start to send and receive; `wait` returns late."""
        return _Delayed(super().post(outbox, channel, sources), time.perf_counter() + self._seconds)


class _Delayed(Pending):
    """Messages that have not arrived before a certain time."""

    def __init__(self, pending: Pending, due: float) -> None:
        self._pending, self._due = pending, due

    def wait(self) -> dict[int, Tensor]:
        inbox = self._pending.wait()
        time.sleep(max(0.0, self._due - time.perf_counter()))
        return inbox


def relay(numel: int, comm: Comm, **settings: Any) -> tuple[torch.nn.Parameter, mpisign.RelaySGD]:
    """Return a model of one parameter with a gradient, and its optimizer."""
    x = torch.nn.Parameter(torch.zeros(numel))
    x.grad = torch.ones(numel)
    return x, mpisign.RelaySGD([x], lr=0.1, momentum=0.9, comm=comm, **settings)


def traffic(size: int, numel: int, steps: int = 3) -> list[tuple[float, float]]:
    """Return how many models each rank sends and receives in a step."""

    def body(comm: Comm) -> tuple[float, float]:
        _, optimizer = relay(numel, comm, topology="double_binary_trees")
        before = comm.traffic.sent, comm.traffic.received
        for _ in range(steps):
            optimizer.step()
        optimizer.settle()
        model = 4 * numel * steps
        return (comm.traffic.sent - before[0]) / model, (comm.traffic.received - before[1]) / model

    return mpisign.simulate(size, body)


def memory(size: int, numel: int, **settings: Any) -> list[dict[str, float]]:
    """Return how many models' worth of vectors each rank's optimizer holds after a few steps, by kind; none is named twice."""

    def body(comm: Comm) -> dict[str, float]:
        x, optimizer = relay(numel, comm, **settings)
        for _ in range(3):
            optimizer.step()
        optimizer.settle()
        found = dict.fromkeys(KINDS, 0.0)
        known = {storage.untyped_storage().data_ptr() for storage in (x, x.grad) if storage is not None}
        for name, vector in tensors(vars(optimizer)):
            place = vector.untyped_storage().data_ptr()
            if vector.numel() and place not in known:
                known.add(place)
                found[kind_of(name)] += vector.untyped_storage().nbytes() / (4 * numel)
        return found

    return mpisign.simulate(size, body)


def tensors(thing: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield all tensors that an optimizer holds, with their paths; communicators hold messages of their own, if any."""
    if isinstance(thing, Tensor):
        yield name, thing
    elif isinstance(thing, Mapping):
        for key, value in thing.items():
            yield from tensors(value, f"{name}.{'state' if isinstance(key, Tensor) else key}")
    elif isinstance(thing, list | tuple):
        for value in thing:
            yield from tensors(value, name)
    elif type(thing).__module__.startswith("mpisign.collectives"):
        yield from tensors(vars(thing), name)


def kind_of(path: str) -> str:
    """Return the kind of a tensor by its path."""
    ends = {".x": "model", ".u": "model", ".reference": "reference", "._sum": "sums"}
    for end, kind in ends.items():
        if path.endswith(end):
            return kind
    return "received" if "._inbox" in path else "sent" if "._outbox" in path else "optimizer"


def steps(numel: int, comm: Comm, delay: str, gradient: Callable[[], object], count: int) -> Callable[[], object]:
    """Return what makes `count` steps along a chain, and ends with no message under way."""
    _, optimizer = relay(numel, comm, topology="chain", delay=delay)

    def run() -> None:
        for _ in range(count):
            gradient()
            optimizer.step()
        optimizer.settle()

    return run


def busy(seconds: float) -> Callable[[], object]:
    """Return what computes for so long, as a gradient does on the processor."""
    a = torch.ones(64, 64)

    def compute() -> None:
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            a @ a

    return compute


def rank(settings: argparse.Namespace) -> None:
    """Measure as one rank; rank 0 writes what came."""
    from mpisign import MPIComm

    harness.one_thread()
    comm, count, seconds = MPIComm(), settings.steps, settings.seconds
    far = f"messages of {1000 * seconds:g} ms, gradients as long"
    comparison = harness.Comparison(far, SYNCHRONOUS)
    for delay in (SYNCHRONOUS, OVERLAPPED):
        network = DelayedComm(comm.split(0), seconds)
        run = steps(1000, network, delay, lambda: time.sleep(seconds), count)
        comparison.add(delay, run)
    comparison.measure(settings.repeats)

    alone = harness.Comparison("calibration", SYNCHRONOUS)
    alone.add(SYNCHRONOUS, steps(settings.numel, comm.split(0), SYNCHRONOUS, lambda: None, count))
    alone.measure(settings.repeats)
    best = torch.tensor([min(alone.seconds[SYNCHRONOUS])], dtype=torch.float64)
    length = float(comm.bcast(best)) / count  # a step without a gradient: most of it is the message
    near = f"MPI in this machine, {settings.numel:,} coordinates, gradients of {1000 * length:.1f} ms"
    local = harness.Comparison(near, SYNCHRONOUS)
    for delay in (SYNCHRONOUS, OVERLAPPED):
        local.add(delay, steps(settings.numel, comm.split(0), delay, busy(length), count))
    local.measure(settings.repeats)
    if comm.rank == 0:
        found = [{"title": c.title, "seconds": c.seconds} for c in (comparison, local)]
        Path(settings.worker).write_text(json.dumps(found))


def measured(settings: argparse.Namespace) -> list[harness.Comparison]:
    """Launch two ranks and return their comparisons, in seconds of a step."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/seconds.json"
        names = ("repeats", "numel", "steps", "seconds")
        own = [word for name in names for word in (f"--{name}", str(getattr(settings, name)))]
        launch(2, [__file__, "--worker", file, *own], settings.timeout)
        for entry in json.loads(Path(file).read_text()):
            comparison = harness.Comparison(entry["title"], SYNCHRONOUS)
            for name, seconds in entry["seconds"].items():
                for one in seconds:
                    comparison.record(name, one / settings.steps)
            found.append(comparison)
    return found


def main() -> None:
    """Count bytes and memory, then time two ranks."""
    flags = harness.parser("relay_step", __doc__, repeats=7, numel=2_500_000)
    flags.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="N", help="ranks whose bytes are counted")
    flags.add_argument("--steps", type=int, default=10, metavar="N", help="of a round (default: 10)")
    flags.add_argument("--seconds", type=float, default=0.05, metavar="S", help="of a slow message (default: 0.05)")
    flags.add_argument("--timeout", type=float, default=300.0, metavar="SECONDS", help="of the job (default: 300)")
    flags.add_argument("--worker", metavar="FILE", help=argparse.SUPPRESS)
    settings = flags.parse_args()
    if settings.worker:
        rank(settings)
        return
    harness.one_thread()
    record = harness.Record("relay_step", settings)
    record.figure("mpi", harness.first_line([mpirun(), "--version"]))
    for size in settings.sizes:
        sent, received = (list(each) for each in zip(*traffic(size, 10_000), strict=True))
        record.figure(f"{size} ranks: models sent and received in a step", {"sent": sent, "received": received})
        record.check(f"{size} ranks: models that a rank sends in a step", max(sent), "≤", 2.02)
        record.check(f"{size} ranks: models that a rank receives in a step", max(received), "≤", 2.02)
    for fill in ("initial", "counts"):
        each = memory(16, 10_000, topology="double_binary_trees", fill=fill)
        held = max(each, key=lambda one: sum(one.values()))
        record.figure(f"16 ranks, fill {fill}: memory in models of the rank that holds most", held)
        print(f"memory of a rank of 16, double binary trees, fill {fill}: in models, beside parameters and gradients")
        for kind, models in held.items():
            print(f"  {models:5.2f}  {kind:10} {KINDS[kind]}")
    record.check("16 ranks: models of messages kept", max(one["received"] for one in each), "≤", 2.02)
    record.check("16 ranks: models of send buffers", max(one["sent"] for one in each), "≤", 2.02)
    print()
    far, near = measured(settings)
    record.compare(far)
    record.compare(near)
    record.check("overlapped, slow messages: speed against synchronous", 1 / far.ratio(OVERLAPPED), "≥", 1.4)
    record.figure("overlapped, MPI in this machine: speed against synchronous", 1 / near.ratio(OVERLAPPED))
    record.close()


if __name__ == "__main__":
    main()
