"""How good the models of all ranks are, and whether they are one."""

import hashlib
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .algorithms.weights import broadcast_buffers, checksum
from .assembly import Shard
from .comm import Comm
from .errors import DisagreementError
from .tasks.base import Task


@dataclass(frozen=True)
class Judgement:
    """What the test data say.

    Attributes:
        loss: the mean, also over workers where each has a model of its own.
        accuracy: likewise.
        worst: the accuracy of the worst worker's model; None where all have one.
        consensus: root of the mean over workers of ‖x_i − x̄‖²; None where all have one model.
        fingerprint: 56 bits of the weights, of all ranks' where they differ.
    """

    loss: float
    accuracy: float
    worst: float | None
    consensus: float | None
    fingerprint: int


def judge(comm: Comm, task: Task, model: torch.nn.Module, shard: Shard, replicated: bool) -> Judgement:
    """Evaluate on all ranks together: one model in shares of the test data, models of their own each on all of it.

    Raises:
        DisagreementError: the model should be one, but the weights differ.
    """
    if replicated:
        fingerprint = _agreed(comm, model)
        broadcast_buffers(model, comm)
        part = slice(comm.rank, None, comm.size)
        loss, correct = _evaluated(task, model, shard, part)
        judged = len(shard.y_test[part])  # the share of one that is late is missing
        sums = comm.allreduce(torch.tensor([loss, correct, judged], dtype=torch.float64))
        sums /= float(sums[2])
        return Judgement(float(sums[0]), float(sums[1]), None, None, fingerprint)
    loss, correct = _evaluated(task, model, shard, slice(None))
    each = comm.allgather(torch.tensor([loss, correct], dtype=torch.float64)) / len(shard.y_test)
    mean_loss, mean_accuracy = each.mean(0).tolist()
    checksums = comm.allgather(torch.tensor([checksum(model.parameters())])).numpy().tobytes()
    digest = hashlib.blake2b(checksums, digest_size=7).digest()
    consensus = _consensus(comm, list(model.parameters()))
    return Judgement(mean_loss, mean_accuracy, float(each[:, 1].min()), consensus, int.from_bytes(digest, "little"))


def average(comm: Comm, model: torch.nn.Module) -> None:
    """Replace the model on every rank by the mean of all ranks' models, floating-point buffers too. Collective."""
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            if tensor.is_floating_point():
                total = comm.allreduce(tensor.detach().double().reshape(-1).clone())
                tensor.copy_((total / comm.size).view(tensor.shape))


def _evaluated(task: Task, model: torch.nn.Module, shard: Shard, part: slice) -> tuple[float, int]:
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    x, y = shard.x_test[part].to(device), shard.y_test[part].to(device)
    return task.evaluate(model, x, y) if len(y) else (0.0, 0)


def _consensus(comm: Comm, parameters: list[Tensor]) -> float:
    own = torch.cat([p.detach().double().reshape(-1) for p in parameters])
    mean = comm.allreduce(own.clone()) / comm.size
    squares = comm.allreduce((own - mean).square().sum().view(1))
    return math.sqrt(float(squares) / comm.size)


def _agreed(comm: Comm, model: torch.nn.Module) -> int:
    own = checksum(model.parameters())
    comm.insist(
        own, DisagreementError(f"rank {comm.rank}: the weights differ between ranks (checksum {own:014x} here)")
    )
    return own
