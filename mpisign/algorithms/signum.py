"""Signum and signSGD with majority vote."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np
import torch

from .. import kernels, registry, seeding
from ..collectives import Vote, VoteFactory
from ..collectives.staged import AwareVote, DeviceVote, StagedVote
from ..errors import ParameterError
from ..quarantine import Quarantine, regrouped
from ..timing import Stopwatch
from .base import Params
from .buckets import Bucket, Buckets, runs
from .flat import FlatOptimizer
from .reports import LateReport, Report
from .second_look import step_unless_worse
from .trust import check_trust, trusted

if TYPE_CHECKING:
    from ..kernels.cuda.tally import AnyVerdict

ZeroRule = Literal["coin", "plus", "abstain"]


class Signum(FlatOptimizer):
    """Signum with majority vote (Bernstein, Zhao, Azizzadenesheli, Anandkumar 2019, Algorithm 1).

        worker:  v ← βv + (1−β)g,  sends sign(v)       one bit a coordinate
        server:  V = majority of the signs             one bit a coordinate back
        worker:  x ← x − η(V + λx)

    Args:
        params: parameters or groups; lr, momentum, weight_decay and trust may differ between groups.
        lr: η >= 0, the step of every coordinate.
        momentum: β in [0, 1).
        weight_decay: λ >= 0, decoupled: it never enters the vote.
        trust: > 0 scales the step of each parameter to η' = min(η, trust·‖x‖/(√d + λ‖x‖)), with d its coordinates and √d
            the norm of any vector of signs (LARC; You, Gitman, Ginsburg 2017). None: all steps are η.
        vote: who counts: a name (`--vote`), a subclass of `Vote`, or a function with its constructor's arguments.
        tie: a coordinate whose votes are even gets a "coin" that all share, "plus", or nothing ("abstain").
        zero: a momentum of exactly 0 votes by a "coin" of its worker's own, by "plus", or not at all ("abstain": a second
            bit a coordinate upwards).
        seed: names the coins.
        option: the step options of Safaryan, Richtárik (2021): 1 always steps; 2 only where the mean over workers of the
            loss, which step's closure returns, does not grow. The closure is then called twice a step. It must be the
            worker's whole objective: with the loss of a minibatch this is not the paper's method.
        overlap: send ballots while backward still works on the layers before: same bits, in several buckets. Nothing
            may then change gradients between backward and step; see `no_sync`.
        bucket: coordinates of a bucket, about.
        scaler: the torch.amp.GradScaler whose scaled losses are differentiated, where overlap is on.
        scored: compare every worker's ballots with the verdict (`Vote.scores`).
        quarantine: no longer count workers whose ballots no honest one would cast, with this chance, in (0, 1), that an
            honest one is ever excluded (`Quarantine`). None: count all. Scores ballots.
        cuda_aware: give MPI the addresses of GPU memory (`AwareVote`), where parameters are there: only with vote "auto" or
            "server", which then is the server's, without overlap, scores, or anything between these votes and MPI.
        comm: a mpisign Comm or an mpi4py communicator; COMM_WORLD by default.

    Raises:
        ParameterError, DisagreementError: see `DistributedOptimizer`.
    """

    default_lr: ClassVar[float] = 1e-3
    kept: ClassVar[str] = "momentum"
    on_gpu: ClassVar[bool] = True

    def __init__(
        self,
        params: Params,
        lr: float | None = None,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        *,
        trust: float | None = None,
        vote: str | VoteFactory = "auto",
        tie: kernels.Tie = "coin",
        zero: ZeroRule = "coin",
        seed: int = 0,
        option: Literal[1, 2] = 1,
        overlap: bool = False,
        bucket: int = 1 << 22,
        scaler: Any = None,
        scored: bool = False,
        quarantine: float | None = None,
        cuda_aware: bool = False,
        comm: Any = None,
    ) -> None:
        self.quarantine: Quarantine | None = None
        self._rate = quarantine
        self.tie, self.zero, self.seed, self.option, self.overlap = tie, zero, seed, option, overlap
        self._vote, self._bucket_size, self._scaler, self._scored = (
            vote,
            bucket,
            scaler,
            scored or quarantine is not None,
        )
        self._cuda_aware = cuda_aware
        self._buckets: Buckets | None = None
        defaults = {
            "lr": self.default_lr if lr is None else lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "trust": trust,
        }
        super().__init__(params, defaults, comm)

    def check_group(self, group: dict[str, Any]) -> None:
        """Raise ParameterError where a group's hyperparameters can't be used."""
        super().check_group(group)
        check_trust(group["trust"])
        self._vote_factory: VoteFactory = (
            registry.load("vote", self._vote) if isinstance(self._vote, str) else self._vote
        )
        if not callable(self._vote_factory) or (
            isinstance(self._vote_factory, type) and not issubclass(self._vote_factory, Vote)
        ):
            raise ParameterError(f"vote must be a name or a subclass of mpisign.collectives.Vote, got {self._vote!r}")
        if self._scored and not getattr(self._vote_factory, "can_score", True):
            raise ParameterError(f"vote={self._vote!r} can't be scored, which quarantine needs: use server or sharded")
        if self._rate is not None and not (isinstance(self._rate, float) and 0 < self._rate < 1):
            raise ParameterError(
                f"quarantine is a rate of false alarms above 0 and below 1, as in 0.001; got {self._rate!r}"
            )
        if not isinstance(self.seed, int) or self.seed < 0:
            raise ParameterError(f"seed must be a whole number of at least 0, got {self.seed!r}")
        if self.tie not in get_args(kernels.Tie) or self.zero not in get_args(ZeroRule):
            raise ParameterError(
                f"tie and zero are {', '.join(get_args(kernels.Tie))}; got tie={self.tie!r}, zero={self.zero!r}"
            )
        if self.option not in (1, 2) or not isinstance(self._bucket_size, int) or self._bucket_size < 1:
            raise ParameterError(
                f"option is 1 or 2, and bucket a number of coordinates; got {self.option!r} and {self._bucket_size!r}"
            )
        if self._cuda_aware and (self._vote not in ("auto", "server") or self.overlap or self._scored):
            raise ParameterError(
                f"cuda_aware=True is for vote='auto' or 'server' without overlap, scores and quarantine; got "
                f"vote={self._vote!r}, overlap={self.overlap!r}, scored={self._scored!r}"
            )

    def settings(self) -> tuple[Any, ...]:
        """Vote, rules and seed: ranks that differ in them would wait for each other, or drift apart."""
        vote = getattr(self._vote_factory, "__qualname__", type(self._vote_factory).__qualname__)
        how = self.overlap and self._bucket_size, self._scaler is not None, self._scored, self._rate, self._cuda_aware
        return (vote, self.tie, self.zero, self.seed, self.option, *how)

    def keeps(self) -> bool:
        """Tell whether any group has momentum."""
        return any(group["momentum"] for group in self.param_groups)

    def connect(self) -> None:
        """Build the buckets, each with its vote."""
        if self._buckets is not None:
            self._buckets.close()
        numels = self.layout.numels.tolist()
        cuts = runs(numels, self._bucket_size) if self.overlap else [(0, len(numels))]
        buckets = [self._bucket(first, stop) for first, stop in cuts]
        self._buckets = Buckets(self.parameters, buckets, self._cast, self.overlap, self._scaler is None)
        if self._rate is not None:
            self.quarantine = self.quarantine or Quarantine(self.comm.size, self._rate)
            self._exclude(self.quarantine)
        self._coins = seeding.key(self.seed, self.comm.rank, "zeros")
        for index in range(len(self.direct) if self.keeps() else 0):
            self.remember(index)

    def _bucket(self, first: int, stop: int) -> Bucket:
        layout, ballots = self.layout.run(first, stop), 2 if self.zero == "abstain" else 1
        watch = Stopwatch() if self.overlap else self.watch  # another thread's time is not this one's
        ballot = torch.zeros(ballots * layout.message, dtype=torch.uint64).to(self.device)
        vote = self._vote_factory(self.comm, layout, self.tie, self.seed, watch, ballots, self._scored)
        return Bucket(
            first,
            stop,
            layout,
            ballot,
            vote,
            torch.zeros_like(self.memory[: 64 * layout.words]) if self.overlap and self._scaler else None,
            self._device_vote(vote, ballot),
        )

    def _device_vote(self, vote: Vote, ballot: torch.Tensor) -> DeviceVote | None:
        """What brings ballots in a GPU's memory to the vote; None on the CPU."""
        if self.staging is None:
            return None
        kind = AwareVote if self._cuda_aware else StagedVote
        return kind(vote, ballot, self.staging)

    @property
    def votes(self) -> list[Vote]:
        """The vote of each bucket, in the order of their messages."""
        return [bucket.vote for bucket in self._cast_buckets.all]

    @property
    def bytes_up(self) -> int:
        """Bytes of a worker's ballots."""
        return sum(bucket.ballot.nbytes for bucket in self._cast_buckets.all)

    @property
    def _cast_buckets(self) -> Buckets:
        assert self._buckets is not None  # since construction
        return self._buckets

    def no_sync(self) -> AbstractContextManager[None]:
        """Let backward inside the context accumulate gradients and send nothing, as all but the last before a step must."""
        return self._cast_buckets.held()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step, on all ranks together; a rank without gradients calls it too, and abstains.

        Args:
            closure: reevaluates the model and returns the loss, which is returned. Option 2 needs it.
        """
        if self.option == 1:
            return super().step(closure)
        if closure is None:
            raise ParameterError(
                "option=2 compares the loss before and after a step: give step a closure that returns it"
            )
        exact = [(self.state[p].get("master", p), p) for p in self.parameters]
        return step_unless_worse(super().step, closure, exact, self.comm, self.no_sync)

    def conclude(self) -> None:
        """Cast what backward has left, and finish the votes that it has begun."""
        if self.overlap:
            if getattr(self, "grad_scale", None) is not None and self._scaler is None:
                raise ParameterError(
                    "ballots were cast from scaled gradients, since overlap=True casts them before the scaler's step: "
                    "construct the optimizer with scaler=, too"
                )
            self._cast_buckets.flush()
            for bucket in self._cast_buckets.all:
                assert bucket.result is not None  # flushed
                bucket.result()

    def skip(self) -> Report:
        """Undo what the cast ballots did to the momentum."""
        for bucket in self._cast_buckets.all:
            if bucket.before is not None:
                self._memory_of(bucket).copy_(bucket.before)
        self._cast_buckets.reset()
        return Report()

    def update(self) -> Report:
        """Pack, vote, descend."""
        buckets, differ, voted, voters = self._cast_buckets, 0, 0, 0
        buckets.flush()
        for bucket in buckets.all:
            assert bucket.result is not None  # flushed
            with self.watch("communicate"):
                verdict = bucket.result()
            with self.watch("vote"):
                own = kernels.disagreement(self.judged(bucket), verdict)  # now, while in the cache
            with self.watch("apply"):
                self._descend(bucket, verdict)
            differ, voted, voters = differ + own[0], voted + own[1], max(voters, verdict.voters)
        report = self._report(voters, differ, voted)
        if self.quarantine is not None:
            self.quarantine.observe(np.sum([vote.scores for vote in self.votes], axis=0), self.steps_taken)
            self._exclude(self.quarantine)
        buckets.reset()
        return report

    def _report(self, voters: int, differ: int, voted: int) -> Report:
        flags = [bucket.finite for bucket in self._cast_buckets.all]
        if self.staging is None:
            return Report(voters, 1 - differ / voted if voted else float("nan"), all(flags))
        counted = [torch.as_tensor(flag, device=self.device) for flag in (differ, voted, *flags)]
        finite = torch.stack(counted[2:]).all().to(torch.int64)
        return LateReport(voters, self.staging.fetch(torch.stack([counted[0], counted[1], finite])))

    def _exclude(self, quarantine: Quarantine) -> None:
        for vote in self.votes:
            vote.excluded[:] = quarantine.excluded

    def state_dict(self) -> dict[str, Any]:
        """As every algorithm's; the first group also holds the quarantine's evidence."""
        state = super().state_dict()
        if self.quarantine is not None:
            state["param_groups"][0]["quarantine"] = self.quarantine.state_dict()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` gave; not collective, but every rank must load its own."""
        super().load_state_dict(state_dict)
        evidence = self.param_groups[0].pop("quarantine", None)
        if self.quarantine is not None and evidence is not None:
            self.quarantine.load_state_dict(evidence)
            self._exclude(self.quarantine)

    def adopt(self, state_dict: dict[str, Any], places: Sequence[int]) -> None:
        """As every algorithm's; what the quarantine knows of those that are here stays known."""
        first, *others = state_dict["param_groups"]
        if first.get("quarantine") is not None:
            first = first | {"quarantine": regrouped(first["quarantine"], places)}
        super().adopt(state_dict | {"param_groups": [first, *others]}, places)

    def _memory_of(self, bucket: Bucket) -> torch.Tensor:
        start = 64 * (bucket.layout.offset if self.keeps() else 0)
        return self.memory[start : start + (64 * bucket.layout.words if self.keeps() else 0)]

    def _cast(self, bucket: Bucket) -> None:
        """Pack a bucket's ballot and send it."""
        with self.watch("pack"), torch.no_grad():
            if bucket.before is not None:
                bucket.before.copy_(self._memory_of(bucket))
            bucket.finite = self._pack(bucket)
        vote, ballot, step = bucket.vote, bucket.ballot, self.steps_taken
        if bucket.there is not None:
            self._cast_from_device(bucket, bucket.there, step)
        elif self.overlap:
            bucket.result = self.comm.aside(lambda: vote(ballot, step))
        else:
            verdict = vote(ballot, step)
            bucket.result = lambda: verdict

    def _cast_from_device(self, bucket: Bucket, vote: DeviceVote, step: int) -> None:
        decide = vote.begin(step)
        if self.overlap:
            decided = self.comm.aside(decide)
            bucket.result = lambda: decided()()
        else:
            bucket.result = decide()

    def _pack(self, bucket: Bucket) -> bool:
        """Write the ballot; tell whether the gradients were finite."""
        own = slice(bucket.first, bucket.stop)
        scale = float(self._scaler.get_scale()) if self.overlap and self._scaler is not None else 1.0
        gradients = [self.gradient(index) for index in range(bucket.first, bucket.stop)]
        memory = self._memory_of(bucket) if self.keeps() else None
        betas = self.each(_momentum)[own]
        gammas = self.each(lambda group: 1 - _momentum(group))[own] / np.float32(scale)
        key = kernels.stream(self._coins, self.steps_taken)
        if self.zero == "abstain":
            still = np.stack([np.ones_like(betas), np.zeros_like(betas)])
            first = bucket.ballot[: bucket.layout.message]
            kernels.sign_ballot(bucket.layout, gradients, memory, betas, gammas, "minus", key, first, still)
        last = bucket.ballot[-bucket.layout.message :]
        zero: kernels.Zero = "coin" if self.zero == "coin" else "plus"
        return kernels.sign_ballot(
            bucket.layout, gradients, memory, betas, gammas, zero, key, last, self.kept_factors(own, scale)
        )

    def kept_factors(self, own: slice, scale: float) -> kernels.Floats:
        """What the momentum becomes, float32[2, P], where that is not what is signed; see `kernels.sign_ballot`."""
        return kernels.NOTHING_KEPT

    def judged(self, bucket: Bucket) -> torch.Tensor:
        """Return this worker's ballot among those that the present verdict is about, uint64[message]."""
        return bucket.ballot[-bucket.layout.message :]

    def _descend(self, bucket: Bucket, verdict: "AnyVerdict") -> None:
        own = slice(bucket.first, bucket.stop)
        rates = self._rates(bucket)
        steps = rates.astype(np.float32)
        decays = (1 - rates * self._each_exact("weight_decay")[own]).astype(np.float32)
        in_place = [p if direct else None for p, direct in zip(self.parameters[own], self.direct[own], strict=True)]
        kernels.descend(in_place, verdict, steps, decays)
        for p in np.flatnonzero(verdict.decided & ~self.direct[own]).tolist():
            self.move(bucket.first + p, kernels.unpack(verdict, p), float(steps[p]), float(decays[p]))

    def _rates(self, bucket: Bucket) -> "np.typing.NDArray[np.float64]":
        """float64[P], η of each parameter, after `trust`."""
        rates = self._each_exact("lr")[bucket.first : bucket.stop]
        if all(group["trust"] is None for group in self.param_groups):
            return rates
        for p, index in enumerate(range(bucket.first, bucket.stop)):
            group, trust = self.owners[index], self.owners[index]["trust"]
            if trust is not None:
                numel, norm = int(bucket.layout.numels[p]), self.norm_of(index)
                rates[p] = trusted(float(rates[p]), float(trust), norm, numel, float(group["weight_decay"]))
        return rates

    def _each_exact(self, name: str) -> "np.typing.NDArray[np.float64]":
        values = np.array([float(group[name]) for group in self.param_groups])
        return np.repeat(values, [len(group["params"]) for group in self.param_groups])


def _momentum(group: dict[str, Any]) -> float:
    return float(group["momentum"])


class SignSGD(Signum):
    """signSGD with majority vote: Signum without momentum (Bernstein, Wang, Azizzadenesheli, Anandkumar 2018).

    A gradient of exactly 0 votes by the rule `zero`. Arguments as in `Signum`, but momentum.
    """

    takes_no: ClassVar[tuple[str, ...]] = ("momentum",)

    def __init__(self, params: Params, lr: float | None = None, weight_decay: float = 0.0, **rules: Any) -> None:
        super().__init__(params, lr, 0.0, weight_decay, **rules)
