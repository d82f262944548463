"""Workers that know few of ten classes: Fashion-MNIST dealt by Dirichlet(0.01) to 16 simulated workers; who learns them all?

Each worker's own model is judged by the test images. A run's figure is that of Vogels et al. (2021): the mean of the last
three evaluations of each worker, then the worst worker. Every method gets the same images, first weights, batches, momentum,
schedule and grid of step sizes, of which the one is taken that is best on images held out of the training set, with seed 0.

The network is `small_cnn`, written as layers over patches of 5x5 pixels that are cut out once, which takes a third of the time.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import harness  # before the others: it limits their threads
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, unfold

import mpisign
from mpisign import seeding
from mpisign.comm import Comm, LossyComm
from mpisign.tasks.images import FashionMNIST
from mpisign.tasks.partition import dirichlet

CLASSES, TRAIN, HELD_OUT, TEST = 10, 2000, 500, 1000  # images, of each class as many
ALL_REDUCE, TREES, CHAIN = "all-reduce", "RelaySGD, double trees", "RelaySGD, chain"
DPSGD, D2 = "DP-SGD, ring", "D², ring"
METHODS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    ALL_REDUCE: (mpisign.AllReduceModel, {}),
    TREES: (mpisign.RelaySGD, {"topology": "double_binary_trees"}),
    CHAIN: (mpisign.RelaySGD, {"topology": "chain"}),
    "SGP, one-peer exponential": (mpisign.StochasticGradientPush, {}),
    D2: (mpisign.D2, {"weights": 0.32}),  # 1/3 is its limit on a ring of even size
    "quasi-global, ring": (mpisign.QuasiGlobal, {}),
    DPSGD: (mpisign.DPSGD, {}),
}
GRID = (0.01, 0.02, 0.05, 0.1, 0.2)
MOMENTUM = 0.9  # the worker's own; without one quasi-global momentum would be DP-SGD
EVALUATIONS, LAST = 10, 3
WARM_UP, DROPS = 0.025, (0.75, 0.9)  # shares of a run, as in the paper's 200 epochs


@dataclass(frozen=True)
class Data:
    """Patches of images, float32 `[n, 64, 25]`, and labels, in three parts."""

    train: tuple[Tensor, Tensor]
    held_out: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Run:
    """One run: what learns, how fast, how long, with which seed, and which share of its messages is lost."""

    method: str
    lr: float
    seed: int
    settings: argparse.Namespace
    lost: float = 0.0
    more: Mapping[str, Any] = field(default_factory=dict)  # arguments of the method

    def factor(self, step: int) -> float:
        """What the step size is multiplied by: a rise from near 0, and a tenth after each drop."""
        share = step / self.settings.steps
        return min((step + 1) / (WARM_UP * self.settings.steps), 1.0) * 0.1 ** sum(share >= drop for drop in DROPS)

    @property
    def evaluated(self) -> list[int]:
        """After which steps the models are judged, the last being the end."""
        return sorted({max(round(self.settings.steps * (k + 1) / EVALUATIONS), 1) for k in range(EVALUATIONS)})


def read(path: Path) -> Data:
    """Return balanced parts of Fashion-MNIST: the first images of each class; smaller ones where the file has fewer."""
    task = FashionMNIST()
    found = task.read(path)
    counts = np.bincount(found.y_train, minlength=CLASSES), np.bincount(found.y_test, minlength=CLASSES)
    trains, tests = min(TRAIN // CLASSES, int(counts[0].min()) * 4 // 5), min(TEST // CLASSES, int(counts[1].min()))
    places = [np.flatnonzero(found.y_train == label) for label in range(CLASSES)]

    def part(x: Any, y: Any, chosen: list[Any]) -> tuple[Tensor, Tensor]:
        rows = np.sort(np.concatenate(chosen))
        return patches(task.inputs(torch.from_numpy(x[rows]))), torch.from_numpy(y[rows])

    return Data(
        part(found.x_train, found.y_train, [rows[:trains] for rows in places]),
        part(found.x_train, found.y_train, [rows[trains : trains + HELD_OUT // CLASSES] for rows in places]),
        part(found.x_test, found.y_test, [np.flatnonzero(found.y_test == c)[:tests] for c in range(CLASSES)]),
    )


def patches(x: Tensor) -> Tensor:
    """Return what a convolution of 5x5 with stride 3 looks at: `[n, 1, 28, 28]` -> `[n, 64, 25]`."""
    return unfold(x, 5, stride=3).transpose(1, 2).contiguous()


def network() -> nn.Module:
    """Return `small_cnn` over patches: `[n, 64, 25]` -> `[n, 10]`; its weights begin with the same distribution."""
    return nn.Sequential(nn.Linear(25, 8), nn.ReLU(), nn.Flatten(), nn.Linear(512, CLASSES))


def learn(run: Run, data: Data) -> dict[str, Any]:
    """Train once; return the accuracies of the worst worker, and of the mean worker, and how they came."""
    settings = run.settings
    parts = dirichlet(data.train[1].numpy(), settings.workers, run.seed + 100, settings.alpha)
    kind, own = METHODS[run.method]

    def body(comm: Comm) -> list[tuple[float, float]]:
        with seeding.torch_seeded(run.seed, seeding.SHARED, "model"):
            model = network()
        lossy = LossyComm(comm, run.lost, run.seed) if run.lost else comm
        optimizer = kind(model.parameters(), lr=run.lr, momentum=settings.momentum, comm=lossy, **{**own, **run.more})
        x, y = (whole[torch.from_numpy(parts[comm.rank])] for whole in data.train)
        chance, found = seeding.torch_generator(run.seed, comm.rank, "batches"), []
        for step in range(settings.steps):
            for group in optimizer.param_groups:
                group["lr"] = run.lr * run.factor(step)
            rows = torch.randint(len(y), (settings.batch_size,), generator=chance)
            optimizer.zero_grad()
            cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
            if step + 1 in run.evaluated:
                found.append((accuracy(model, *data.held_out), accuracy(model, *data.test)))
        return found

    started = time.perf_counter()
    held_out, test = np.moveaxis(np.array(mpisign.simulate(settings.workers, body)), 2, 0)  # [workers, evaluations]
    return {
        "held_out": _worst(held_out),
        "test": _worst(test),
        "test_mean": float(test[:, -LAST:].mean()),
        "curve": test.min(axis=0).tolist(),
        "seconds": time.perf_counter() - started,
    }


@torch.no_grad()
def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Return the share of right answers; that of a network whose weights are no longer finite is what it guesses."""
    return int((model(x).argmax(1) == y).sum()) / len(y)


def _worst(accuracies: Any) -> float:
    return float(accuracies[:, -LAST:].mean(axis=1).min())


class Learners:
    """Makes runs, in processes of their own if there are several."""

    def __init__(self, data: Path, jobs: int) -> None:
        _open(data)
        self._pool = get_context("spawn").Pool(jobs, _open, (data,)) if jobs > 1 else None

    def __call__(self, runs: list[Run]) -> list[dict[str, Any]]:
        """Return what came of each, in order, and print it as it comes."""
        found = []
        for run, one in zip(
            runs, map(_learn, runs) if self._pool is None else self._pool.imap(_learn, runs), strict=True
        ):
            lost = f", {run.lost:.0%} lost" if run.lost else ""
            more = "".join(f", {name} {value}" for name, value in run.more.items())
            print(
                f"{run.method + more + lost:44} lr {run.lr:<5g} seed {run.seed}   held-out {one['held_out']:.4f}   "
                f"test, worst {one['test']:.4f} mean {one['test_mean']:.4f}   {one['seconds']:.0f} s",
                flush=True,
            )
            found.append(one)
        return found

    def close(self) -> None:
        """End the processes."""
        if self._pool is not None:
            self._pool.close()
            self._pool.join()


_DATA: list[Data] = []  # of this process


def _open(path: Path) -> None:
    harness.one_thread()
    warnings.filterwarnings("ignore", "rank .* is not finite", RuntimeWarning)  # step sizes too large; accuracy tells
    _DATA[:] = [read(path)]


def _learn(run: Run) -> dict[str, Any]:
    return learn(run, _DATA[0])


def table(figures: Mapping[str, Any]) -> str:
    """Return what a record says, as Markdown: the worst worker's accuracy, the mean over seeds, in percent."""
    rows = [
        "| method | step size | worst worker, of each seed | mean | against all-reduce | mean worker | worst at the end |"
    ]
    rows.append("|---|---|---|---|---|---|---|")
    best = 100 * np.mean(figures[ALL_REDUCE]["test"])
    for method in METHODS:
        entry = figures[method]
        each = " ".join(f"{100 * one:.1f}" for one in entry["test"])
        worst, mean = 100 * np.mean(entry["test"]), 100 * np.mean(entry["test_mean"])
        end = 100 * np.mean([curve[-1] for curve in entry["curves"]])
        rows.append(
            f"| {method} | {entry['lr']:g} | {each} | {worst:.1f} | {worst - best:+.1f} | {mean:.1f} | {end:.1f} |"
        )
    return "\n".join(rows)


def draw(record: Mapping[str, Any], path: Path) -> None:
    """Draw the worst worker's accuracy over the steps, of each method at its step size, the mean over seeds."""
    from matplotlib import pyplot

    from mpisign.plotting.axes import color, with_corner

    figure, ax = pyplot.subplots(figsize=(8, 4.6), layout="constrained")
    for number, method in enumerate(METHODS):
        entry = record[method]
        curve = 100 * np.mean(entry["curves"], axis=0)
        label = f"{method}: {100 * np.mean(entry['test']):.1f} at γ = {entry['lr']:g}"
        ax.plot(entry["steps"], curve, color=color(number), linewidth=2, marker="o", markersize=4, label=label)
    for drop in DROPS:
        ax.axvline(drop * entry["steps"][-1], color="#777777", linewidth=1, linestyle=":")
    with_corner(ax, "step; dotted: the step size drops to a tenth", "test accuracy of the worst worker (%)")
    ax.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def parser(name: str, description: str | None, repeats: int) -> argparse.ArgumentParser:
    """Return the flags of this benchmark, and of those that make runs like it."""
    flags = harness.parser(name, description, repeats)
    flags.add_argument("--data", type=Path, required=True, metavar="FILE", help="Fashion-MNIST: a folder, or an .npz")
    flags.add_argument("--workers", type=int, default=16, metavar="N", help="default: 16")
    flags.add_argument("--alpha", type=float, default=0.01, metavar="A", help="of Dirichlet(A) (default: 0.01)")
    flags.add_argument(
        "--batch-size", type=int, default=16, metavar="N", help="samples a worker and step (default: 16)"
    )
    flags.add_argument("--momentum", type=float, default=MOMENTUM, metavar="BETA", help=f"default: {MOMENTUM:g}")
    flags.add_argument("--steps", type=int, default=300, metavar="N", help="of a run (default: 300)")
    flags.add_argument("--jobs", type=int, default=1, metavar="N", help="runs at a time (default: 1)")
    return flags


def tune(
    record: harness.Record, learners: Learners, settings: argparse.Namespace
) -> dict[str, tuple[float, dict[str, Any]]]:
    """Try the grid with seed 0 and keep it; return each method's step size, and what came of it."""
    runs = [Run(method, lr, 0, settings) for method in METHODS for lr in settings.grid]
    found = dict(zip(((run.method, run.lr) for run in runs), learners(runs), strict=True))
    chosen = {}
    for method in METHODS:
        grid = {lr: found[method, lr] for lr in settings.grid}
        lr = max(grid, key=lambda lr: grid[lr]["held_out"])
        chosen[method] = lr, grid[lr]
        kept = {f"{lr:g}": {key: one[key] for key in ("held_out", "test", "test_mean")} for lr, one in grid.items()}
        record.figure(f"{method}: grid", kept)
        print(f"{method}: {lr:g}")
    return chosen


def judge(
    record: harness.Record,
    learners: Learners,
    chosen: Mapping[str, tuple[float, dict[str, Any]]],
    settings: argparse.Namespace,
) -> dict[str, dict[str, Any]]:
    """Run each method at its step size with the seeds from 1 on too; return and keep what came of all seeds."""
    runs = [Run(method, chosen[method][0], seed, settings) for method in METHODS for seed in range(1, settings.repeats)]
    found = learners(runs)
    entries = {}
    for method, (lr, first) in chosen.items():
        own = [first, *(one for run, one in zip(runs, found, strict=True) if run.method == method)]
        entries[method] = {
            "lr": lr,
            "test": [one["test"] for one in own],
            "test_mean": [one["test_mean"] for one in own],
            "steps": Run(method, lr, 0, settings).evaluated,
            "curves": [one["curve"] for one in own],
            "seconds": float(np.mean([one["seconds"] for one in own])),
        }
        record.figure(method, entries[method])
    return entries


def main() -> None:
    """Choose step sizes, judge each method, and compare with all-reduced SGD on the same workers."""
    flags = parser("heterogeneous", __doc__, repeats=3)
    flags.add_argument("--grid", type=float, nargs="+", default=GRID, metavar="LR", help="step sizes to choose from")
    settings = flags.parse_args()
    data, settings.data = settings.data, settings.data.name  # a record is for others, who have it elsewhere
    record = harness.Record("heterogeneous", settings)
    learners = Learners(data, settings.jobs)
    entries = judge(record, learners, tune(record, learners, settings), settings)
    learners.close()
    worst = {method: 100 * float(np.mean(entry["test"])) for method, entry in entries.items()}
    better = max(TREES, CHAIN, key=lambda method: worst[method])
    record.check(f"{better}: points below {ALL_REDUCE}", worst[ALL_REDUCE] - worst[better], "≤", 2)
    print(f"\n{table(entries)}\n")
    record.close()
    if settings.json is not None and find_spec("matplotlib") is not None:
        draw(entries, settings.json.with_suffix(".png"))


if __name__ == "__main__":
    main()
