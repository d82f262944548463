"""What a run counts, and the figures that it ends with."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch

from .algorithms.base import DistributedOptimizer
from .algorithms.reports import Report
from .algorithms.signum import Signum
from .comm import Comm
from .evaluation import Judgement
from .tracking import Metrics

PHASES = ("gradient", "pack", "communicate", "vote", "apply", "evaluate")


@dataclass
class Counts:
    """What a rank counts while it trains."""

    loss: float = 0.0
    batches: int = 0
    agreement: float = 0.0
    votes: int = 0
    not_finite: int = 0
    sent: int = 0

    def add_step(self, report: Report) -> None:
        """Count what came of one step."""
        if not math.isnan(report.agreement):
            self.agreement += report.agreement
            self.votes += 1
        self.not_finite += not report.finite

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(*(a + b for a, b in zip(asdict(self).values(), asdict(other).values(), strict=True)))

    def over_ranks(self, comm: Comm) -> "Counts":
        """Return the sums over all ranks; collective."""
        sums = comm.allreduce(torch.tensor(list(asdict(self).values()), dtype=torch.float64)).tolist()
        return Counts(sums[0], int(sums[1]), sums[2], int(sums[3]), int(sums[4]), int(sums[5]))


def epoch_figures(epoch: int, optimizer: DistributedOptimizer, sums: Counts, found: Judgement) -> Metrics:
    """Return an epoch's figures, from counts over all ranks in this epoch and what the test data say."""
    return {
        "epoch": epoch,
        "step": optimizer.steps_taken,
        "train_loss": sums.loss / max(sums.batches, 1),
        "test_loss": found.loss,
        "test_accuracy": found.accuracy,
        "test_accuracy_worst": found.worst,
        "consensus_distance": found.consensus,
        "agreement": sums.agreement / sums.votes if sums.votes else None,
        "not_finite": sums.not_finite,
    }


def run_figures(comm: Comm, optimizer: DistributedOptimizer, own: Counts) -> dict[str, Any]:
    """Return what all ranks have counted in a whole run; collective. Names and units are those of `training.train`."""
    total = own.over_ranks(comm)
    numel = sum(p.numel() for p in optimizer.parameters)
    median, most = bytes_sent(comm, own)
    dense = 4 * numel / optimizer.bytes_up if optimizer.bytes_up else 1.0
    watched = optimizer.quarantine if isinstance(optimizer, Signum) else None
    by_rank = _agreement_by_rank(comm, own) if watched is None else watched.agreement
    since = {} if watched is None else {str(comm.members[rank]): step for rank, step in watched.since.items()}
    return {
        "parameters": numel,
        "steps": optimizer.steps_taken,
        "agreement": total.agreement / total.votes if total.votes else None,
        "agreement_by_rank": _by_founder(comm, by_rank),
        "quarantined": None if watched is None else since,
        "quarantine_refuted": None if watched is None else watched.refuted,
        "not_finite": total.not_finite,
        "seconds_by_phase": _phases(comm, optimizer.watch.seconds),
        "bytes_up_per_step": optimizer.bytes_up,
        "bytes_sent": median,
        "bytes_sent_float32": round(median * dense),
        "bytes_sent_most": most,
    }


def bytes_sent(comm: Comm, own: Counts) -> tuple[int, int]:
    """Return what a worker has sent, the median rank, of two the one that sent less; and what the busiest has. Collective."""
    each = comm.allgather(torch.tensor([own.sent], dtype=torch.int64)).view(-1)
    sent = each[list(comm.heard)].sort().values
    return int(sent[(len(sent) - 1) // 2]), int(sent[-1])


def _by_founder(comm: Comm, by_rank: list[float | None]) -> list[float | None]:
    """A figure by the numbers that ranks had at the start; None for those that have died."""
    known = dict(zip(comm.members, by_rank, strict=True))
    return [known.get(rank) for rank in range(comm.founders)]


def _agreement_by_rank(comm: Comm, own: Counts) -> list[float | None]:
    """Return the mean agreement of each rank with the verdict, None where it never voted; collective."""
    pairs = comm.allgather(torch.tensor([own.agreement, own.votes], dtype=torch.float64)).tolist()
    return [agreement / votes if votes else None for agreement, votes in pairs]


def _phases(comm: Comm, seconds: dict[str, float]) -> dict[str, float]:
    """Return the mean over ranks of the seconds of each phase; collective."""
    total = comm.allreduce(torch.tensor([seconds.get(name, 0.0) for name in PHASES], dtype=torch.float64))
    return dict(zip(PHASES, (total / len(comm.heard)).tolist(), strict=True))
