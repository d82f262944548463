"""What workers that lie do to a vote and to a mean: MNIST, 784-100-10, learnt by simulated ranks of which some invert.

Every worker draws its batches from the whole training set, as in the setting of Bernstein et al. (2019). A learning rate is
constant, and chosen from a grid by the accuracy on images held out of the training set, in short runs of seed 0.
"""

import argparse
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import harness  # before the others: it limits their threads
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import mpisign
from mpisign import kernels, seeding
from mpisign.attacks import Attack, Gradients, Honest, Invert
from mpisign.comm import Comm
from mpisign.tasks.images import MNIST
from mpisign.tasks.models import mlp

SIGNUM, SGD = "Signum", "SGD, all-reduced"
GRIDS = {SIGNUM: [3e-3, 1e-3, 3e-4, 1e-4], SGD: [0.3, 0.1, 0.03, 0.01]}
KINDS = {SIGNUM: mpisign.Signum, SGD: mpisign.SGD}
HELD_OUT = 5000
CHANCE = 0.2  # an accuracy at which nothing is learnt: guessing gives .1


class Loud(Invert):
    """Says −8g: for a vote the same as −g to the bit, for a mean of 15 with 7 such workers −3.2 times the gradient."""

    def __call__(self, gradients: Gradients, step: int) -> Gradients:
        """Return −8g."""
        return [None if g is None else g * 8 for g in super().__call__(gradients, step)]


@dataclass(frozen=True)
class Data:
    """Images as the network takes them, in three parts."""

    train: tuple[Tensor, Tensor]
    held_out: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Setting:
    """One way to learn: who votes or averages, how many lie, and how."""

    algorithm: str
    ranks: int
    liars: int
    attack: type[Attack] = Invert

    def __str__(self) -> str:
        how = "" if self.liars == 0 else " 8 times as loud" if self.attack is Loud else ""
        return f"{self.algorithm}, {self.liars} of {self.ranks} inverting{how}"


def read(path: Path | None) -> Data:
    """Return MNIST, its last training images held out: HELD_OUT of them, a tenth of smaller sets."""
    task = MNIST()
    found = task.read(path)
    cut = len(found.y_train) - min(HELD_OUT, len(found.y_train) // 10)
    x, y = task.inputs(torch.from_numpy(found.x_train)), torch.from_numpy(found.y_train)
    test = task.inputs(torch.from_numpy(found.x_test)), torch.from_numpy(found.y_test)
    return Data((x[:cut], y[:cut]), (x[cut:], y[cut:]), test)


def learn(
    of: Setting, lr: float, steps: int, seed: int, data: Data, settings: argparse.Namespace
) -> tuple[float, float, int]:
    """Return the accuracies on held-out and test images of rank 0's network, and its weights' checksum."""

    def body(comm: Comm) -> tuple[float, float, int]:
        with seeding.torch_seeded(seed, seeding.SHARED, "model"):
            model = mlp((1, 28, 28), 10)
        optimizer = KINDS[of.algorithm](model.parameters(), lr=lr, momentum=settings.momentum, comm=comm)
        ranks = range(of.ranks - of.liars, of.ranks)
        lie = (of.attack if comm.rank in ranks else Honest)(comm.rank, ranks, of.ranks, seed)
        chance = seeding.torch_generator(seed, comm.rank, "batches")
        (x, y), parameters = data.train, list(model.parameters())
        for step in range(steps):
            rows = torch.randint(len(y), (settings.batch_size,), generator=chance)
            optimizer.zero_grad()
            cross_entropy(model(x[rows]), y[rows]).backward()
            for p, said in zip(parameters, lie([p.grad for p in parameters], step), strict=True):
                p.grad = said
            optimizer.step()
        if comm.rank:
            return 0.0, 0.0, 0  # all ranks have the same weights
        return accuracy(model, *data.held_out), accuracy(model, *data.test), mpisign.checksum(parameters)

    return mpisign.simulate(of.ranks, body)[0]


@torch.no_grad()
def accuracy(model: torch.nn.Module, x: Tensor, y: Tensor) -> float:
    """Return the share of right answers; that of a network whose weights are no longer finite is what it guesses."""
    return int((model(x).argmax(1) == y).sum()) / len(y)


def tune(record: harness.Record, of: Setting, data: Data, settings: argparse.Namespace) -> tuple[float, float]:
    """Try the grid in short runs; return the learning rate that is best on the held-out images, and the best test accuracy."""
    found = {lr: learn(of, lr, settings.short, 0, data, settings) for lr in GRIDS[of.algorithm]}
    for lr, (held_out, test, _) in found.items():
        accuracies = f"held-out {held_out:.4f}   test {test:.4f}"
        print(f"{of!s:52} lr {lr:<7g} {settings.short:5d} steps   {accuracies}", flush=True)
    entries = {f"{lr:g}": {"held_out": one[0], "test_accuracy": one[1]} for lr, one in found.items()}
    record.figure(f"{of}: grid", {"steps": settings.short, "lr": entries})
    return max(found, key=lambda lr: found[lr][0]), max(test for _, test, _ in found.values())


def judge(record: harness.Record, of: Setting, lr: float, data: Data, settings: argparse.Namespace) -> list[float]:
    """Learn for long with each seed; return the accuracies on the test set."""
    started = time.perf_counter()
    found = [learn(of, lr, settings.steps, seed, data, settings)[1] for seed in range(settings.repeats)]
    seconds = (time.perf_counter() - started) / settings.repeats
    shown = " ".join(f"{value:.4f}" for value in found)
    print(f"{of!s:52} lr {lr:<7g} {settings.steps:5d} steps   test {shown}   {seconds:.0f} s\n", flush=True)
    record.figure(str(of), {"lr": lr, "steps": settings.steps, "test_accuracy": found, "seconds": seconds})
    return found


def loudness(record: harness.Record, lr: float, data: Data, settings: argparse.Namespace) -> None:
    """Check that a vote gives the same bits however loud the liars are."""
    steps = min(settings.short, 50)
    sums = [learn(Setting(SIGNUM, 15, 7, attack), lr, steps, 0, data, settings)[2] for attack in (Invert, Loud)]
    record.check(f"{SIGNUM}: do liars that are 8 times as loud change the weights?", float(sums[0] != sums[1]), "≤", 0)


def main() -> None:
    """Tune and judge each setting, from no liars to too many."""
    flags = harness.parser("adversaries", __doc__, repeats=1)
    flags.add_argument("--data", type=Path, required=True, metavar="FILE", help="MNIST: a folder, or an .npz")
    flags.add_argument(
        "--batch-size", type=int, default=100, metavar="N", help="samples a worker and step (default: 100)"
    )
    flags.add_argument("--momentum", type=float, default=0.9, metavar="BETA", help="default: 0.9")
    flags.add_argument(
        "--steps", type=int, default=1500, metavar="N", help="of the runs that are judged (default: 1500)"
    )
    flags.add_argument("--short", type=int, default=200, metavar="N", help="steps of a run of the grid (default: 200)")
    flags.add_argument("--quick", action="store_true", help="a tenth of all steps, to see that it runs")
    settings = flags.parse_args()
    if settings.quick:
        settings.steps, settings.short = max(settings.steps // 10, 1), max(settings.short // 10, 1)
    harness.one_thread()
    kernels.warm_up()
    data = read(settings.data)
    settings.data = settings.data.name  # a record is for others, who have it elsewhere
    record = harness.Record("adversaries", settings)
    warnings.filterwarnings(
        "ignore", "rank .* is not finite", RuntimeWarning
    )  # a mean that diverges; its accuracy tells
    vote, mean, loud = Setting(SIGNUM, 15, 7), Setting(SGD, 15, 7), Setting(SGD, 15, 7, Loud)
    lr, _ = tune(record, vote, data, settings)
    record.check(f"{vote}: test accuracy", min(judge(record, vote, lr, data, settings)), "≥", 0.93)
    loudness(record, lr, data, settings)
    judge(record, Setting(SIGNUM, 15, 0), lr, data, settings)
    few, many = Setting(SIGNUM, 7, 3), Setting(SIGNUM, 7, 4)
    record.check(f"{few}: test accuracy", min(judge(record, few, lr, data, settings)), "≥", 0.93)
    record.check(f"{many}: test accuracy", max(judge(record, many, lr, data, settings)), "≤", CHANCE)
    lr_mean, _ = tune(record, mean, data, settings)
    judge(record, mean, lr_mean, data, settings)
    honest = Setting(SGD, 15, 0)
    record.check(f"{honest}: test accuracy", min(judge(record, honest, lr_mean, data, settings)), "≥", 0.93)
    record.check(f"{loud}: best test accuracy of the grid", tune(record, loud, data, settings)[1], "≤", CHANCE)
    record.close()


if __name__ == "__main__":
    main()
