"""Kernels on one GPU: their bits against the CPU's, their time against a copy on the device, and a whole local step.

NUMBA_ENABLE_CUDASIM=1 runs it without a GPU, to see that it runs: its times then mean nothing.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import harness  # before the others: it limits their threads
import numpy as np
import torch
from resnet50 import NUMEL, shapes, size
from startup import launch

from mpisign import kernels
from mpisign.comm import awareness
from mpisign.kernels import NOTHING_KEPT, Layout, cuda
from mpisign.kernels.cuda.memory import SIMULATED

VOTERS = 16
COPY = "copy on the device"
LEAST = 0.8  # of the copy's bytes per second
STEP = 1e-3  # seconds of a local step of 25.6 M parameters, at most
DEVICE = torch.device("cpu") if SIMULATED else torch.device("cuda", 0)
LR, BETA = np.float32(1e-3), np.float32(0.9)

Words = torch.Tensor


def seconds(run: Callable[[], object], calls: int) -> float:
    """Time `calls` calls by the device's clock: from the first one's start to the last one's end, divided."""
    if SIMULATED:
        started = time.perf_counter()
        for _ in range(calls):
            run()
        return (time.perf_counter() - started) / calls
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize(DEVICE)
    first.record()
    for _ in range(calls):
        run()
    last.record()
    last.synchronize()
    return float(first.elapsed_time(last)) / 1e3 / calls


def layout_of(numel: int) -> Layout:
    """ResNet-50's tensors, or three for a try."""
    return Layout(
        [size(shape) for shape in shapes(numel)] if numel > 10_000 else [numel // 2, numel - numel // 2 - 1, 1]
    )


class Model:
    """Parameters, gradients, momentum, ballots and verdict of one layout on the device, and the same on the CPU."""

    def __init__(self, layout: Layout, voters: int) -> None:
        random = torch.Generator().manual_seed(0)
        numels, self.layout, self.voters = layout.numels.tolist(), layout, voters
        self.host_gradients = [torch.randn(n, generator=random) for n in numels]
        for gradient in self.host_gradients:
            gradient[::7] = 0
        self.host_x = [torch.randn(n, generator=random) for n in numels]
        self.host_momentum = torch.randn(64 * layout.words, generator=random)
        self.gradients, self.x = ([t.to(DEVICE) for t in host] for host in (self.host_gradients, self.host_x))
        if SIMULATED:
            self.gradients, self.x = ([t.clone() for t in host] for host in (self.gradients, self.x))
        self.momentum = self.host_momentum.clone().to(DEVICE)
        self.betas, self.gammas = (np.full(len(numels), value, np.float32) for value in (BETA, 1 - BETA))
        self.steps, self.decays = (np.full(len(numels), value, np.float32) for value in (LR, 1 - LR * LR))
        self.scales = np.random.default_rng(0).random((voters, len(numels)), np.float32)
        words = torch.randint(-(2**63), 2**63 - 1, (voters, layout.message), generator=random)
        self.host_ballots = words.view(torch.uint64)
        present = np.ones(len(numels), np.bool_)
        for ballot in self.host_ballots:
            layout.write_presence(present, ballot.numpy()[: layout.header])
        self.ballots = self.host_ballots.clone().to(DEVICE)
        self.ballot = torch.zeros(layout.message, dtype=torch.uint64).to(DEVICE)
        self.tally, self.verdict = cuda.Tally(layout, voters, DEVICE), cuda.Verdict(layout, "abstain", DEVICE)
        self.vector = torch.zeros(64 * layout.words, device=DEVICE)
        self.means = torch.zeros(layout.coordinates, device=DEVICE)
        self.norm = cuda.l2_norm(layout, self.gradients)

    def sign(self, momentum: bool = True) -> object:
        """Momentum and signs, or signs alone."""
        memory = self.momentum if momentum else None
        rest = (memory, self.betas, self.gammas, "coin", 1, self.ballot, NOTHING_KEPT)
        return cuda.sign_ballot(self.layout, self.gradients, *rest)

    def stochastic(self) -> object:
        """Stochastic signs."""
        return cuda.stochastic_sign_ballot(self.layout, self.gradients, self.norm, 2, self.ballot)

    def count(self) -> None:
        """All ballots into a tally."""
        self.tally.clear()
        self.tally.add(list(self.ballots))

    def decide(self) -> None:
        """The tally's majority."""
        self.tally.decide(3, self.verdict)

    def descend(self) -> None:
        """The step."""
        cuda.descend(self.x, self.verdict, self.steps, self.decays)

    def disagree(self) -> object:
        """One ballot against the verdict."""
        return cuda.disagreement(self.ballots[0], self.verdict)

    def sums(self) -> None:
        """Sums of signs."""
        cuda.sign_sums(self.layout, self.tally.planes, self.tally.voters, self.vector)

    def residuals(self) -> None:
        """What scaled signs leave."""
        cuda.residuals(self.layout, self.momentum, self.scales[0], self.ballots[0], self.vector)

    def scaled_means(self) -> object:
        """Means of scaled signs."""
        return cuda.scaled_sign_means(self.layout, self.ballots, self.scales, self.means)

    def norms(self) -> object:
        """The norm of all gradients."""
        return cuda.l2_norm(self.layout, self.gradients)


def same(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Whether two tensors have the same bits."""
    return one.cpu().contiguous().numpy().tobytes() == two.contiguous().numpy().tobytes()


def bits(model: Model) -> dict[str, bool]:
    """Run everything once on the device and on the CPU: what has equal bits."""
    layout, host, found = model.layout, torch.zeros(model.layout.message, dtype=torch.uint64), {}
    rest = (model.betas, model.gammas, "coin", 1, host)
    kernels.sign_ballot(layout, model.host_gradients, None, *rest)
    model.sign(momentum=False)
    found["signs"] = same(model.ballot, host)
    kernels.sign_ballot(layout, model.host_gradients, model.host_momentum, *rest)
    model.sign()
    found["momentum and signs"] = same(model.ballot, host) and same(model.momentum, model.host_momentum)
    norm = kernels.l2_norm(layout, model.host_gradients)
    found["norm"] = float(model.norm) == norm
    kernels.stochastic_sign_ballot(layout, model.host_gradients, norm, 2, host)
    model.stochastic()
    found["stochastic signs"] = same(model.ballot, host)
    tally, verdict = kernels.Tally(layout, model.voters), kernels.Verdict(layout, "abstain")
    tally.add(list(model.host_ballots))
    tally.decide(3, verdict)
    model.count()
    model.decide()
    found["count"] = same(model.tally.counters(), tally.counters())
    found["majority"] = same(model.verdict.message, verdict.message)
    counted = tuple(map(int, cuda.disagreement(model.ballots[0], model.verdict)))
    found["disagreement"] = counted == kernels.disagreement(model.host_ballots[0], verdict)
    kernels.descend(model.host_x, verdict, model.steps, model.decays)
    model.descend()
    found["descent"] = all(map(same, model.x, model.host_x))
    sums, means = torch.zeros(64 * layout.words), torch.zeros(layout.coordinates)
    kernels.sign_sums(layout, tally.counters().numpy(), tally.voters, sums)
    model.sums()
    found["sums of signs"] = same(model.vector, sums)
    errors = model.vector.cpu()
    kernels.residuals(layout, model.host_momentum, model.scales[0], model.host_ballots[0], errors)
    model.residuals()
    found["residuals"] = same(model.vector, errors)
    kernels.scaled_sign_means(layout, model.host_ballots, model.scales, means)
    model.scaled_means()
    found["means of scaled signs"] = same(model.means, means)
    return found


def speeds(record: harness.Record, model: Model, repeats: int, calls: int) -> None:
    """Every kernel against a copy that moves as many bytes: half of them read, half written."""
    d, planes = model.layout.coordinates, model.voters.bit_length()
    cases = {  # bytes that can't be avoided
        "momentum and signs": (model.sign, 12 * d + d // 8),
        "signs": (lambda: model.sign(momentum=False), 4 * d + d // 8),
        "stochastic signs": (model.stochastic, 4 * d + d // 8),
        "descent, ties abstain": (model.descend, 8 * d + d // 4),
        f"count of {model.voters}": (model.count, (model.voters + planes) * d // 8),
        "majority, ties abstain": (model.decide, (planes + 2) * d // 8),
        "disagreement": (model.disagree, d // 4),
        "sums of signs": (model.sums, 4 * d + planes * d // 8),
        "residuals": (model.residuals, 8 * d + d // 8),
        f"means of {model.voters} scaled signs": (model.scaled_means, 4 * d + model.voters * d // 8),
        "norm: eight additions at a time, in order": (model.norms, 4 * d),
    }
    for name, (run, nbytes) in cases.items():
        source = torch.zeros(max(nbytes // 2, 1), dtype=torch.uint8, device=DEVICE)
        target = torch.empty_like(source)
        comparison = harness.Comparison(name, COPY)
        candidates = {name: run, COPY: lambda target=target, source=source: target.copy_(source)}
        for candidate, operation in candidates.items():
            comparison.add(candidate, operation, nbytes)
            operation()
        for _ in range(repeats):
            for candidate, operation in candidates.items():
                comparison.record(candidate, seconds(operation, calls))
        record.compare(comparison)
        if "norm" not in name:  # bound by the order of its additions, not by memory
            record.check(f"{name}: share of the bandwidth of a copy", 1 / comparison.ratio(name), "≥", LEAST)


def local_step(record: harness.Record, model: Model, repeats: int, calls: int) -> None:
    """What a worker does in a step of Signum, and the count of its own ballot, without a message; with the host's part."""

    def step() -> None:
        model.sign()
        model.tally.clear()
        model.tally.add([model.ballot])
        model.decide()
        cuda.disagreement(model.ballot, model.verdict)
        model.descend()

    step()
    found = [seconds(step, calls) for _ in range(repeats)]
    record.figure("seconds of a local step", found)
    record.check(f"local step, {model.layout.coordinates:,} parameters: ms", 1e3 * min(found), "≤", 1e3 * STEP)


def whole_steps(record: harness.Record, numel: int, device: str = "cuda", steps: int = 20) -> None:
    """A step over MPI of 1, 2 and 4 ranks on one device: by copies, and by address where a probe says that MPI takes it."""
    answer = awareness.consult("cuda:0") if device == "cuda" else awareness.Answer(None, "no GPU is asked for")
    record.figure("MPI takes GPU memory", {"answer": answer.aware, "reason": answer.reason})
    for ranks in (1, 2, 4):
        ways = {"staged": device, **({"aware": device} if answer.aware else {}), "on the CPU": "cpu"}
        found = {name: one_step(ranks, name, place, numel, steps) for name, place in ways.items()}
        record.figure(f"whole step, {ranks} ranks", found)
        others = sum(step["checksum"] != found["on the CPU"]["checksum"] for step in found.values())
        record.check(f"whole step, {ranks} ranks: ways with other bits than the CPU's", others, "≤", 0)
        for name, step in found.items():
            print(f"whole step, {ranks} ranks, {name}: {1e3 * step['seconds']:.2f} ms")


def one_step(ranks: int, way: str, device: str, numel: int, steps: int) -> dict[str, Any]:
    """Start ranks of `gpu_step.py`, and return what rank 0 has found."""
    script = [str(Path(__file__).with_name("gpu_step.py")), "--way", "aware" if way == "aware" else "staged"]
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder, "found.json")
        script += ["--device", device, "--numel", str(numel), "--steps", str(steps), "--found", str(found)]
        launch(ranks, script, 300)
        step: dict[str, Any] = json.loads(found.read_text())
    return step


def flags() -> argparse.Namespace:
    """Parse the command line."""
    found = harness.parser("gpu", __doc__, repeats=9, numel=NUMEL)
    found.add_argument("--long", type=int, default=1 << 28, metavar="N", help="coordinates of the vector that is timed")
    found.add_argument("--calls", type=int, default=10, metavar="N", help="calls a round")
    return found.parse_args()


def main() -> None:
    """Bits first: a fast kernel with other bits is none."""
    settings = flags()
    record = harness.Record("gpu", settings)
    if not SIMULATED and not torch.cuda.is_available():
        raise SystemExit(
            "no GPU that torch can use: run this where there is one, or with NUMBA_ENABLE_CUDASIM=1 for a try"
        )
    card = "simulated" if SIMULATED else torch.cuda.get_device_name(DEVICE)
    print(f"card: {card}\n")
    record.figure("card", card)
    record.figure("torch's CUDA", torch.version.cuda)
    cuda.warm_up(DEVICE)
    model = Model(layout_of(settings.numel), VOTERS if not SIMULATED else 3)
    equal = bits(model)
    record.figure("bits equal to the CPU's", equal)
    record.check("kernels with other bits than the CPU's", sum(not same for same in equal.values()), "≤", 0)
    local_step(record, model, settings.repeats, settings.calls)
    del model
    if not SIMULATED:
        torch.cuda.empty_cache()
        whole_steps(record, settings.numel)
    speeds(record, Model(Layout([settings.long]), VOTERS if not SIMULATED else 3), settings.repeats, settings.calls)
    record.close()
    if not all(equal.values()):
        raise SystemExit(f"other bits than the CPU's: {', '.join(name for name, same in equal.items() if not same)}")


if __name__ == "__main__":
    main()
