"""The loop: every rank reads its share of the data, all take each step together, and all end with the same weights."""

import math
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from . import seeding
from .algorithms.base import DistributedOptimizer, Report, dense_gradient
from .algorithms.signum import Signum
from .assembly import Shard, build_attack, build_model, build_task, choose_algorithm, share
from .attacks import Attack, Gradients
from .comm import Comm
from .comm.uncounted import uncounted
from .config import Config
from .evaluation import average, judge
from .overhearing import GradientAttack
from .schedules import factors
from .tracking import Metrics, Tracker


@dataclass
class Counts:
    """What a rank counts while it trains."""

    loss: float = 0.0
    batches: int = 0
    agreement: float = 0.0
    votes: int = 0
    not_finite: int = 0

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
        return Counts(sums[0], int(sums[1]), sums[2], int(sums[3]), int(sums[4]))


def train(comm: Comm, config: Config, tracker: Tracker) -> tuple[Metrics, torch.nn.Module]:
    """Train as `config` says, on all ranks together; return the run's figures and the model, the same on every rank.

    Where each rank has a model of its own, that is the mean of all; `test_accuracy` and `test_loss` are the means of the
    models', `test_accuracy_worst` the worst one's, `consensus_distance` the root mean square of ‖x_i − x̄‖. Else None.

    The figures' names and units: `seconds*` in seconds of this run without start-up, `bytes_sent` payload that a worker
    (the median rank, of two the one that sends less) sent in all steps, `bytes_sent_float32` the same with float32,
    `bytes_sent_most` the busiest rank's, `agreement` in [0, 1] or None, `agreement_by_rank` a list of such, `byzantine`
    the ranks that lie, `quarantined` {rank: step of its exclusion, from 0} or None, `quarantine_refuted` a step or None,
    `checksum` in hexadecimal. With --quarantine, `agreement_by_rank` is what the server saw, else what each rank says of itself.
    """
    seed = config.run.seed
    lie, attack = build_attack(comm, config)
    task = build_task(comm, config)
    algorithm, settings = choose_algorithm(comm, config, lie, attack)
    shard = share(comm, task, config, algorithm.replicated)
    model = build_model(comm, task, shard, config)
    optimizer = algorithm(model.parameters(), **settings)
    watch = optimizer.watch
    loop = _Loop(comm, config, shard)
    rates = torch.optim.lr_scheduler.LambdaLR(optimizer, loop.factor)
    # a lie needs the whole gradient before any of it leaves
    accumulate = optimizer.no_sync if config.adversary.attack else nullcontext
    tracker.begin(loop.epochs, loop.steps_per_epoch)
    own, metrics, sent, first_step_at = Counts(), {}, 0, math.nan
    comm.barrier()
    started = time.perf_counter()
    for epoch in range(loop.epochs):
        counts = Counts()
        model.train()
        for indices in loop.batches():
            optimizer.zero_grad()
            if len(indices):
                labels = attack.labels(shard.y_train[indices], shard.classes)
                with watch("gradient"), seeding.torch_seeded(seed, comm.rank, f"step {optimizer.steps_taken}"):
                    loss = task.loss(model, shard.x_train[indices], labels)
                    with accumulate():
                        loss.backward()  # type: ignore[no-untyped-call]
                counts.loss += float(loss.detach())
                counts.batches += 1
            if lie.overhears == "gradients":
                overhear(comm, attack, optimizer)
            tamper(attack, optimizer)
            before = comm.traffic.sent
            optimizer.step()
            rates.step()
            sent += comm.traffic.sent - before
            counts.add_step(optimizer.report)
            if optimizer.steps_taken == 1:
                first_step_at = time.time()
            tracker.step()
        with watch("evaluate"):
            optimizer.settle()
            found = judge(comm, task, model, shard, optimizer.replicated)
            sums = counts.over_ranks(comm)
        own = own + counts
        metrics = {
            "epoch": epoch + 1,
            "step": optimizer.steps_taken,
            "train_loss": sums.loss / max(sums.batches, 1),
            "test_loss": found.loss,
            "test_accuracy": found.accuracy,
            "test_accuracy_worst": found.worst,
            "consensus_distance": found.consensus,
            "agreement": sums.agreement / sums.votes if sums.votes else None,
            "not_finite": sums.not_finite,
            "bytes_sent": sent,
            "seconds": time.perf_counter() - started,
        }
        tracker.epoch(metrics)
    seconds = time.perf_counter() - started
    total = own.over_ranks(comm)
    numel = sum(p.numel() for p in model.parameters())
    per_rank = comm.allgather(torch.tensor([sent], dtype=torch.int64)).view(-1).sort().values
    watched = optimizer.quarantine if isinstance(optimizer, Signum) else None
    dense = 4 * numel / optimizer.bytes_up if optimizer.bytes_up else 1.0
    summary = {
        "task": config.problem.task,
        "model": config.problem.model or task.default_model,
        "partition": config.problem.partition,
        "algorithm": config.algorithm.algorithm,
        "vote": config.algorithm.vote,
        "topology": config.network.topology,
        "ranks": comm.size,
        "lr": float(rates.base_lrs[0]),
        "parameters": numel,
        "epochs": loop.epochs,
        "steps": optimizer.steps_taken,
        "test_accuracy": metrics["test_accuracy"],
        "test_accuracy_worst": metrics["test_accuracy_worst"],
        "consensus_distance": metrics["consensus_distance"],
        "test_loss": metrics["test_loss"],
        "train_loss": metrics["train_loss"],
        "agreement": total.agreement / total.votes if total.votes else None,
        "agreement_by_rank": agreement_by_rank(comm, own) if watched is None else watched.agreement,
        "attack": config.adversary.attack,
        "byzantine": list(attack.ranks),
        "quarantined": None if watched is None else {str(rank): step for rank, step in watched.since.items()},
        "quarantine_refuted": None if watched is None else watched.refuted,
        "not_finite": total.not_finite,
        "seconds": seconds,
        "seconds_by_phase": phases(comm, watch.seconds),
        "bytes_up_per_step": optimizer.bytes_up,
        "bytes_sent": int(per_rank[(comm.size - 1) // 2]),
        "bytes_sent_float32": round(int(per_rank[(comm.size - 1) // 2]) * dense),
        "bytes_sent_most": int(per_rank[-1]),
        "checksum": f"{found.fingerprint:014x}",
        "first_step_at": first_step_at,
    }
    if not optimizer.replicated:
        average(comm, model)
    return summary, model


class _Loop:
    """How many steps there are, and which samples each takes; a rank with fewer samples gets empty batches at the end."""

    def __init__(self, comm: Comm, config: Config, shard: Shard) -> None:
        self._batch_size, self._samples = config.run.batch_size, len(shard.y_train)
        self._visited = -(-self._samples // shard.copies)  # in an epoch
        self._random = seeding.generator(config.run.seed, comm.rank, "batches")
        self._shuffles, self._order = config.run.batches == "shuffled", torch.empty(0, dtype=torch.int64)
        own = -(-self._visited // self._batch_size)
        self.steps_per_epoch = int(comm.allreduce(torch.tensor([own]), "max"))
        self._left = config.run.steps or config.run.epochs * self.steps_per_epoch
        self.epochs = -(-self._left // self.steps_per_epoch)
        epochs = self._left / self.steps_per_epoch
        self.factor = factors(config.run.schedule, config.run.warm_up, self.steps_per_epoch, epochs)

    def batches(self) -> Iterator[Tensor]:
        """Yield the indices of an epoch's batches: of this epoch's own, or `--batches split`, the same in each epoch."""
        if self._shuffles or len(self._order) == 0:
            self._order = torch.from_numpy(self._random.permutation(self._samples)[: self._visited])
        for step in range(min(self.steps_per_epoch, self._left)):
            self._left -= 1
            yield self._order[step * self._batch_size : (step + 1) * self._batch_size]


def overhear(comm: Comm, attack: Attack, optimizer: DistributedOptimizer) -> None:
    """Let a Byzantine worker know all honest workers' gradients; collective, and no traffic of the algorithm's.

    Every rank receives all gradients for it, in float32, or float64 where a parameter is.
    """
    parameters = optimizer.parameters
    gradients = [dense_gradient(p, index) for index, p in enumerate(parameters)]
    wide = torch.float64 if any(p.dtype == torch.float64 for p in parameters) else torch.float32
    there = torch.tensor([gradient is not None for gradient in gradients], dtype=wide)
    flat = [(p if g is None else g).detach().reshape(-1).to(wide) for p, g in zip(parameters, gradients, strict=True)]
    with uncounted(comm):
        rows = comm.allgather(torch.cat([there, *flat]))
    if not isinstance(attack, GradientAttack):
        return
    sizes = [len(there), *(p.numel() for p in parameters)]
    honest: list[Gradients] = []
    for rank in sorted(set(range(comm.size)) - set(attack.ranks)):
        given, *blocks = torch.split(rows[rank], sizes)
        honest.append(
            [
                block.view(p.shape).to(p.dtype) if here else None
                for here, block, p in zip(given.tolist(), blocks, parameters, strict=True)
            ]
        )
    attack.hear(honest)


def tamper(attack: Attack, optimizer: DistributedOptimizer) -> None:
    """Replace each p.grad by what the attack says instead."""
    parameters = optimizer.parameters
    for p, said in zip(parameters, attack([p.grad for p in parameters], optimizer.steps_taken), strict=True):
        p.grad = said


def agreement_by_rank(comm: Comm, own: Counts) -> list[float | None]:
    """Return the mean agreement of each rank with the verdict, None where it never voted; collective."""
    pairs = comm.allgather(torch.tensor([own.agreement, own.votes], dtype=torch.float64)).tolist()
    return [agreement / votes if votes else None for agreement, votes in pairs]


def phases(comm: Comm, seconds: dict[str, float]) -> dict[str, float]:
    """Return the mean over ranks of the seconds of each phase; collective."""
    names = ["gradient", "pack", "communicate", "vote", "apply", "evaluate"]
    mean = comm.allreduce(torch.tensor([seconds.get(name, 0.0) for name in names], dtype=torch.float64)) / comm.size
    return dict(zip(names, mean.tolist(), strict=True))
