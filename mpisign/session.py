"""One rank's part of a run, step by step, and all that it can be continued from."""

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from . import devices, seeding
from .algorithms.reports import Report
from .assembly import Shard, build_attack, build_model, build_task, choose_algorithm, share
from .batches import Batches
from .comm import Comm
from .config import Config
from .errors import EnvironmentProblem
from .evaluation import average, judge
from .faults import Faults
from .figures import Counts, bytes_sent, epoch_figures, run_figures
from .lies import overhear, tamper
from .schedules import factors
from .survival import shared_part
from .tracking import Metrics, Tracker

State = dict[str, Any]


class Session:
    """One rank's part of a run: all that changes while it trains, to be saved at any step, and taken up again.

    Constructing is collective, as all methods are but `state`, `restore`, `common_state` and `catch_up`.

    Args:
        comm: the ranks.
        config: the settings.
        tracker: shows and writes what comes of it.
        shard: this rank's data, where it has them already.
        faults: what goes wrong on purpose.
    """

    def __init__(
        self,
        comm: Comm,
        config: Config,
        tracker: Tracker,
        shard: Shard | None = None,
        faults: Faults | None = None,
    ) -> None:
        self.comm, self.config, self.tracker = comm, config, tracker
        lie, self.attack = build_attack(comm, config)
        self._hears = lie.overhears == "gradients"
        self.task = build_task(comm, config)
        algorithm, settings = choose_algorithm(comm, config, lie, self.attack)
        self.shard = shard or share(comm, self.task, config)
        self.device = _device(comm, config.run.device)
        self.model = build_model(comm, self.task, self.shard, config).to(self.device)
        self.optimizer = algorithm(self.model.parameters(), **settings)
        self.batches = _batches(comm, config, self.shard)
        run, epochs = config.run, self.batches.steps / self.batches.steps_per_epoch
        factor = factors(run.schedule, run.warm_up, self.batches.steps_per_epoch, epochs)
        self.rates = torch.optim.lr_scheduler.LambdaLR(self.optimizer, factor)
        self.faults = faults or Faults((), 0, 1, 0)
        self.counts, self.own = Counts(), Counts()  # in this epoch, and in those before
        self._uncounted: list[tuple[Callable[[], Tensor] | None, Report]] = []  # steps that a GPU may be busy with
        self.metrics: list[Metrics] = []
        self._judged_at = 0  # after so many steps
        self.seconds, self._started = 0.0, time.perf_counter()
        self.first_step_at: float | None = None

    @property
    def worker(self) -> int:
        """The number that this rank had at the start."""
        return self.comm.members[self.comm.rank]

    @property
    def steps_taken(self) -> int:
        """Steps since the beginning of the run."""
        return self.optimizer.steps_taken

    @property
    def epoch_is_due(self) -> bool:
        """Whether an epoch's steps are done, and it has not been judged."""
        return self.batches.epoch_is_over and self._judged_at < self.batches.taken

    @property
    def is_over(self) -> bool:
        """Whether all steps are done, and judged."""
        return self.batches.taken >= self.batches.steps and not self.epoch_is_due

    @property
    def elapsed(self) -> float:
        """Seconds of training until now, those before a restart among them."""
        return self.seconds + time.perf_counter() - self._started

    def start(self) -> None:
        """Wait for all, and begin to count time."""
        batches = self.batches
        self.tracker.begin(batches.epochs, batches.steps_per_epoch, self.metrics, batches.taken)
        self.comm.barrier()
        self.faults.begin()
        self._started = time.perf_counter()

    def step(self) -> None:
        """Take one step."""
        optimizer, shard, comm = self.optimizer, self.shard, self.comm
        worker, watch = self.worker, optimizer.watch
        self.model.train()
        optimizer.zero_grad()
        began = time.perf_counter()
        fetched = None
        if len(indices := self.batches.take()):
            labels = self.attack.labels(shard.y_train[indices], shard.classes)
            # a lie needs the whole gradient before any of it leaves
            accumulate = optimizer.no_sync if self.config.adversary.attack else nullcontext
            purpose = f"step {optimizer.steps_taken}"
            with watch("gradient"), seeding.torch_seeded(self.config.run.seed, worker, purpose):
                # data stay on the host, so that a set may be larger than a GPU's memory; on the CPU `to` does nothing
                x, y = shard.x_train[indices].to(self.device), labels.to(self.device)
                loss = self.task.loss(self.model, x, y)
                with accumulate():
                    loss.backward()  # type: ignore[no-untyped-call]
            if optimizer.staging is None:
                self.counts.loss += float(loss.detach())
                self.counts.batches += 1
            else:
                fetched = optimizer.staging.fetch(loss.detach())
        if self._hears:
            overhear(comm, self.attack, optimizer)
        tamper(self.attack, optimizer)
        self.faults.before_update(optimizer.steps_taken, optimizer.parameters, time.perf_counter() - began)
        before = comm.traffic.sent
        optimizer.step()
        self.rates.step()
        self.counts.sent += comm.traffic.sent - before
        if optimizer.staging is None:
            self.counts.add_step(optimizer.report)
        else:
            self._count_all()  # those before: the vote has waited for them
            self._uncounted.append((fetched, optimizer.report))
        self.first_step_at = self.first_step_at or time.time()
        self.tracker.step()

    def _count_all(self) -> None:
        """Count the steps whose numbers a GPU had not given yet."""
        for fetched, report in self._uncounted:
            if fetched is not None:
                self.counts.loss += float(fetched())
                self.counts.batches += 1
            self.counts.add_step(report)
        self._uncounted.clear()

    def judge(self) -> None:
        """Close an epoch: evaluate, and report."""
        self._count_all()
        optimizer = self.optimizer
        with optimizer.watch("evaluate"):
            optimizer.settle()
            found = judge(self.comm, self.task, self.model, self.shard, optimizer.replicated)
            sums = self.counts.over_ranks(self.comm)
        self.own, self.counts = self.own + self.counts, Counts()
        figures = epoch_figures(len(self.metrics) + 1, optimizer, sums, found)
        figures |= {
            "bytes_sent": bytes_sent(self.comm, self.own)[0],
            "seconds": self.elapsed,
            "checksum": f"{found.fingerprint:014x}",
        }
        self.metrics.append(figures)
        self._judged_at = self.batches.taken
        self.tracker.epoch(figures)

    def summary(self) -> Metrics:
        """Return the run's figures."""
        config, comm, last, elapsed = self.config, self.comm, self.metrics[-1], self.elapsed
        return {
            "task": config.problem.task,
            "model": config.problem.model or self.task.default_model,
            "partition": config.problem.partition,
            "algorithm": config.algorithm.algorithm,
            "vote": config.algorithm.vote,
            "codec": config.algorithm.codec,
            "aggregator": config.algorithm.aggregator,
            "topology": config.network.topology,
            "ranks": comm.founders,
            "ranks_left": list(comm.members),
            "lr": float(self.rates.base_lrs[0]),
            "epochs": len(self.metrics),
            **{name: last[name] for name in _LAST},
            **run_figures(comm, self.optimizer, self.own),
            "late": comm.lateness(),
            "attack": config.adversary.attack,
            "byzantine": [comm.members[rank] for rank in self.attack.ranks],
            "seconds": elapsed,
            "first_step_at": self.first_step_at,
        }

    def finished_model(self) -> torch.nn.Module:
        """Return the model that the run ends with, the same on every rank: the mean, where each has one of its own."""
        if not self.optimizer.replicated:
            average(self.comm, self.model)
        return self.model

    # ---- what a run can be continued from ----

    def state(self) -> State:
        """Return all that the next steps depend on: tensors are those in use, not copies. Waits for messages under way."""
        self._count_all()
        return {
            "model": dict(self.model.state_dict()),
            "optimizer": self.optimizer.state_dict(),
            "losses": self.optimizer.comm.state(),
            "attack": self.attack.state(),
            "batches": self.batches.state(),
            "rates": self._rates(),
            "counts": asdict(self.counts),
            "own": asdict(self.own),
            "metrics": list(self.metrics),
            "judged_at": self._judged_at,
            "seconds": self.elapsed,
            "phases": dict(self.optimizer.watch.seconds),
            "first_step_at": self.first_step_at,
            "shared": list(self.optimizer.shared),
            "members": list(self.comm.members),
            "founders": self.comm.founders,
            "worker": self.worker,
            "holders": list(self.shard.holders),
        }

    def is_among_the_same_ranks(self, state: State) -> bool:
        """Tell whether a state was given among these ranks, none of which has died since."""
        return (state["members"], state["founders"]) == (list(self.comm.members), self.comm.founders)

    def restore(self, state: State) -> None:
        """Go on where `state` was given, by a rank of this run, or of an earlier one.

        Among other ranks than then, only what is the worker's own is taken up: its model, momentum and residual; messages
        that were under way between those ranks are not.

        Args:
            state: as given; or what `common_state` gave, where this rank was away when the others were saved.
        """
        if "common" in state:
            self.catch_up(state)
            return
        same_data = (state["worker"], state["holders"]) == (self.worker, list(self.shard.holders))
        self.batches.restore(state["batches"], same_data)
        self._take_up(state, state["optimizer"], state["batches"]["steps_per_epoch"])
        if self.is_among_the_same_ranks(state):
            self.optimizer.comm.restore(state["losses"])
        self.attack.restore(state["attack"])
        self.optimizer.steps_taken = self.rates.last_epoch = self.batches.taken
        self.counts, self.own = Counts(**state["counts"]), Counts(**state["own"])
        self.seconds = state["seconds"]
        self.optimizer.watch.seconds.update(state["phases"])
        self.first_step_at = state["first_step_at"]
        self._started = time.perf_counter()

    def common_state(self) -> State:
        """Return what is the same on all ranks between two steps, which a rank that was left behind goes on from.

        Where the method is `replicated`. Until the next step's parameters change, the same is returned.
        """
        return {
            "common": True,
            "model": dict(self.model.state_dict()),
            "optimizer": shared_part(self.optimizer.state_dict(), self.optimizer.shared),
            "rates": self._rates(),
            "taken": self.steps_taken,
            "steps_per_epoch": self.batches.steps_per_epoch,
            "metrics": self.metrics,
            "judged_at": self._judged_at,
            "members": list(self.comm.members),
            "founders": self.comm.founders,
        }

    def catch_up(self, state: State) -> None:
        """Go on where another rank's `common_state` was given, with this worker's own momentum, data and chance.

        Its momentum stays as it is. Its batches are those that it would have come to.
        """
        self._count_all()
        if len(state["metrics"]) > len(self.metrics):  # an epoch has been closed without what is counted here
            self.own, self.counts = self.own + self.counts, Counts()
        own, common = self.optimizer.state_dict()["state"], state["optimizer"]["state"]
        both = {index: own.get(index, {}) | common.get(index, {}) for index in {*own, *common}}
        self._take_up(state, state["optimizer"] | {"state": both}, state["steps_per_epoch"])
        self.batches.catch_up(state["taken"] * self.batches.steps_per_epoch // state["steps_per_epoch"])
        self.optimizer.steps_taken = self.rates.last_epoch = self.batches.taken

    def _take_up(self, state: State, optimizer: State, steps_per_epoch: int) -> None:
        """Take model, rates and figures from a state of epochs of so many steps, and what the optimizer is to hold."""
        self.model.load_state_dict(state["model"])
        if self.is_among_the_same_ranks(state):
            self.optimizer.load_state_dict(optimizer)
        else:
            self.optimizer.adopt(optimizer, [_place(state["members"], member) for member in self.comm.members])
        self.rates.load_state_dict(state["rates"] | {"lr_lambdas": [None] * len(self.rates.lr_lambdas)})
        self.metrics = list(state["metrics"])
        self._judged_at = state["judged_at"] * self.batches.steps_per_epoch // steps_per_epoch

    def _rates(self) -> State:
        return {name: value for name, value in self.rates.state_dict().items() if name != "lr_lambdas"}


_LAST = ("test_accuracy", "test_accuracy_worst", "consensus_distance", "test_loss", "train_loss", "checksum")


def _device(comm: Comm, wanted: str) -> torch.device:
    """The device of this rank; where any rank has none, that is raised on all."""
    return (
        torch.device("cpu") if wanted == "cpu" else comm.together(lambda: devices.current(wanted), EnvironmentProblem)
    )


def _place(members: list[int], member: int) -> int:
    return members.index(member) if member in members else -1


def _batches(comm: Comm, config: Config, shard: Shard) -> Batches:
    run, samples = config.run, len(shard.y_train)
    visited = -(-samples // shard.copies)
    steps_per_epoch = int(comm.allreduce(torch.tensor([-(-visited // run.batch_size)]), "max"))
    return Batches(
        seeding.generator(run.seed, comm.members[comm.rank], "batches"),
        samples,
        visited,
        run.batch_size,
        steps_per_epoch,
        run.epochs,
        run.steps,
        run.batches == "shuffled",
    )
