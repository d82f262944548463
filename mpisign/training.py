"""The loop: every rank reads its share of the data, all take each step together, and all end with the same weights."""

import inspect
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from . import registry, seeding
from .algorithms.base import DistributedOptimizer, broadcast_buffers, checksum
from .comm import Comm
from .config import AlgorithmConfig, Config
from .errors import ConfigError, DataError, DisagreementError
from .tasks.base import Dataset, Task
from .tasks.partition import partition
from .tracking import Metrics, Tracker


@dataclass(frozen=True)
class Shard:
    """What one rank holds of a data set: its part of the training data, and every size-th sample of the test data."""

    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor
    shape: tuple[int, ...]
    classes: int
    tests: int  # on all ranks


@dataclass
class Counts:
    """What a rank counts while it trains."""

    loss: float = 0.0
    batches: int = 0
    agreement: float = 0.0
    votes: int = 0
    not_finite: int = 0

    def over_ranks(self, comm: Comm) -> "Counts":
        """Return the sums over all ranks; collective."""
        sums = comm.allreduce(torch.tensor(list(asdict(self).values()), dtype=torch.float64)).tolist()
        return Counts(sums[0], int(sums[1]), sums[2], int(sums[3]), int(sums[4]))


def train(comm: Comm, config: Config, tracker: Tracker) -> tuple[Metrics, torch.nn.Module]:
    """Train as `config` says, on all ranks together; return the run's figures and the model, the same on every rank.

    The figures' names and units: `seconds*` in seconds of this run without start-up, `bytes_sent` payload that a worker
    (the median rank) sent in all steps, `bytes_sent_float32` the same with float32 in place of the bits,
    `bytes_sent_most` the busiest rank's, `agreement` in [0, 1] or None, `checksum` in hexadecimal.
    """
    seed = config.run.seed
    task: Task = registry.load("task", config.problem.task)()
    shard = share(comm, task, config)
    model = build_model(comm, task, shard, config)
    optimizer = build_optimizer(comm, model, config)
    watch = optimizer.watch
    loop = _Loop(comm, config, shard)
    tracker.begin(loop.epochs, loop.steps_per_epoch)
    total, metrics, sent, first_step_at = Counts(), {}, 0, math.nan
    comm.barrier()
    started = time.perf_counter()
    for epoch in range(loop.epochs):
        counts = Counts()
        model.train()
        for indices in loop.batches():
            optimizer.zero_grad()
            if len(indices):
                with watch("gradient"), seeding.torch_seeded(seed, comm.rank, f"step {optimizer.steps_taken}"):
                    loss = task.loss(model, shard.x_train[indices], shard.y_train[indices])
                    loss.backward()  # type: ignore[no-untyped-call]
                counts.loss += float(loss.detach())
                counts.batches += 1
            before = comm.traffic.sent
            optimizer.step()
            sent += comm.traffic.sent - before
            if not math.isnan(optimizer.report.agreement):
                counts.agreement += optimizer.report.agreement
                counts.votes += 1
            counts.not_finite += not optimizer.report.finite
            if optimizer.steps_taken == 1:
                first_step_at = time.time()
            tracker.step()
        with watch("evaluate"):
            test_loss, accuracy = evaluate(comm, task, model, shard)
            sums = counts.over_ranks(comm)
        total = Counts(*(a + b for a, b in zip(asdict(total).values(), asdict(sums).values(), strict=True)))
        metrics = {
            "epoch": epoch + 1,
            "step": optimizer.steps_taken,
            "train_loss": sums.loss / max(sums.batches, 1),
            "test_loss": test_loss,
            "test_accuracy": accuracy,
            "agreement": sums.agreement / sums.votes if sums.votes else None,
            "not_finite": sums.not_finite,
            "bytes_sent": sent,
            "seconds": time.perf_counter() - started,
        }
        tracker.epoch(metrics)
    seconds = time.perf_counter() - started
    numel = sum(p.numel() for p in model.parameters())
    per_rank = comm.allgather(torch.tensor([sent], dtype=torch.int64)).view(-1).sort().values
    dense = 4 * numel / optimizer.bytes_up if optimizer.bytes_up else 1.0
    summary = {
        "task": config.problem.task,
        "model": config.problem.model or task.default_model,
        "partition": config.problem.partition,
        "algorithm": config.algorithm.algorithm,
        "vote": config.algorithm.vote,
        "ranks": comm.size,
        "lr": float(optimizer.param_groups[0]["lr"]),
        "parameters": numel,
        "epochs": loop.epochs,
        "steps": optimizer.steps_taken,
        "test_accuracy": metrics["test_accuracy"],
        "test_loss": metrics["test_loss"],
        "train_loss": metrics["train_loss"],
        "agreement": total.agreement / total.votes if total.votes else None,
        "not_finite": total.not_finite,
        "seconds": seconds,
        "seconds_by_phase": phases(comm, watch.seconds),
        "bytes_up_per_step": optimizer.bytes_up,
        "bytes_sent": int(per_rank[comm.size // 2]),
        "bytes_sent_float32": round(int(per_rank[comm.size // 2]) * dense),
        "bytes_sent_most": int(per_rank[-1]),
        "checksum": f"{agreed_checksum(comm, model):014x}",
        "first_step_at": first_step_at,
    }
    return summary, model


class _Loop:
    """How many steps there are, and which samples each takes; a rank with fewer samples gets empty batches at the end."""

    def __init__(self, comm: Comm, config: Config, shard: Shard) -> None:
        self._batch_size, self._samples = config.run.batch_size, len(shard.y_train)
        self._random = seeding.generator(config.run.seed, comm.rank, "batches")
        own = -(-self._samples // self._batch_size)
        self.steps_per_epoch = int(comm.allreduce(torch.tensor([own]), "max"))
        self._left = config.run.steps or config.run.epochs * self.steps_per_epoch
        self.epochs = -(-self._left // self.steps_per_epoch)

    def batches(self) -> Iterator[Tensor]:
        """Yield the indices of an epoch's batches, in an order of this epoch's own."""
        order = torch.from_numpy(self._random.permutation(self._samples))
        for step in range(min(self.steps_per_epoch, self._left)):
            self._left -= 1
            yield order[step * self._batch_size : (step + 1) * self._batch_size]


def share(comm: Comm, task: Task, config: Config) -> Shard:
    """Let rank 0 read the task's data and hand it out; what goes wrong there is raised on all ranks."""
    data, problem = None, None
    if comm.rank == 0:
        try:
            data = task.read(config.problem.data)
        except Exception as error:
            problem = error if isinstance(error, DataError) else DataError(f"{type(error).__name__}: {error}")
    comm.raise_together(problem)
    form = torch.zeros(10, dtype=torch.int64)
    if data is not None:
        sizes = [len(data.y_train), len(data.y_test), data.classes, data.x_train.dtype == np.uint8, len(data.shape)]
        form[: 5 + len(data.shape)] = torch.tensor([*sizes, *data.shape])
    trains, tests, classes, is_uint8, dims, *dimensions = comm.bcast(form).tolist()
    shape, dtype = tuple(dimensions[:dims]), torch.uint8 if is_uint8 else torch.float32

    def handed_out(array: Any, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        tensor = torch.empty(shape, dtype=dtype) if array is None else torch.from_numpy(np.ascontiguousarray(array))
        return comm.bcast(tensor.view(-1)).view(shape)

    each: Any = data or Dataset.__new__(Dataset)
    x_train, y_train, x_test, y_test = (
        getattr(each, name, None) for name in ("x_train", "y_train", "x_test", "y_test")
    )
    labels = handed_out(y_train, (trains,), torch.int64)
    mine = torch.from_numpy(partition(config.problem.partition, labels.numpy(), comm.size, config.run.seed)[comm.rank])
    return Shard(
        handed_out(x_train, (trains, *shape), dtype)[mine],
        labels[mine],
        handed_out(x_test, (tests, *shape), dtype)[comm.rank :: comm.size].clone(),
        handed_out(y_test, (tests,), torch.int64)[comm.rank :: comm.size].clone(),
        shape,
        classes,
        tests,
    )


def build_model(comm: Comm, task: Task, shard: Shard, config: Config) -> torch.nn.Module:
    """Return the model, equal on all ranks, for the shape that the task's inputs have."""
    build = registry.load("model", config.problem.model or task.default_model)
    shape = tuple(task.inputs(torch.zeros((1, *shard.shape), dtype=shard.x_train.dtype)).shape[1:])
    with seeding.torch_seeded(config.run.seed, seeding.SHARED, "model"):
        model: torch.nn.Module = build(shape, shard.classes)
    return model


def build_optimizer(comm: Comm, model: torch.nn.Module, config: Config) -> DistributedOptimizer:
    """Return the algorithm with those settings that it takes; one that it doesn't take must be left at its default."""
    name = config.algorithm.algorithm
    kind = registry.load("algorithm", name)
    if not (isinstance(kind, type) and issubclass(kind, DistributedOptimizer)):
        raise ConfigError(f"--algorithm {name}: {kind!r} is no DistributedOptimizer")
    takes = inspect.signature(kind).parameters
    settings = {key: value for key, value in asdict(config.algorithm).items() if key != "algorithm"}
    for key, value in settings.items():
        if key not in takes and value != getattr(AlgorithmConfig(), key):
            raise ConfigError(f"--{key.replace('_', '-')} {value}: {name} has no such setting; leave it out")
    given = {
        key: value
        for key, value in (settings | {"seed": config.run.seed}).items()
        if key in takes and value is not None
    }
    optimizer: DistributedOptimizer = kind(model.parameters(), comm=comm, **given)
    return optimizer


def evaluate(comm: Comm, task: Task, model: torch.nn.Module, shard: Shard) -> tuple[float, float]:
    """Return the mean loss and the accuracy on the test data, each rank judging its part, with rank 0's buffers."""
    broadcast_buffers(model, comm)
    loss, correct = task.evaluate(model, shard.x_test, shard.y_test) if len(shard.y_test) else (0.0, 0)
    sums = comm.allreduce(torch.tensor([loss, correct], dtype=torch.float64))
    return float(sums[0]) / shard.tests, float(sums[1]) / shard.tests


def agreed_checksum(comm: Comm, model: torch.nn.Module) -> int:
    """Return the checksum of the weights; raise DisagreementError on all ranks where they differ."""
    own = checksum(model.parameters())
    comm.insist(
        own, DisagreementError(f"rank {comm.rank}: the weights differ between ranks (checksum {own:014x} here)")
    )
    return own


def phases(comm: Comm, seconds: dict[str, float]) -> dict[str, float]:
    """Return the mean over ranks of the seconds of each phase; collective."""
    names = ["gradient", "pack", "communicate", "vote", "apply", "evaluate"]
    mean = comm.allreduce(torch.tensor([seconds.get(name, 0.0) for name in names], dtype=torch.float64)) / comm.size
    return dict(zip(names, mean.tolist(), strict=True))
