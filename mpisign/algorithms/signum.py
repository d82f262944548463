"""Signum and signSGD with majority vote."""

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from .. import kernels, registry, seeding
from ..collectives import Vote
from ..errors import ParameterError
from .base import DistributedOptimizer, Params, Report, dense_gradient


class Signum(DistributedOptimizer):
    """Signum with majority vote (Bernstein, Zhao, Azizzadenesheli, Anandkumar 2019, Algorithm 1).

        worker:  v ← βv + (1−β)g,  sends sign(v)       one bit a coordinate
        server:  V = majority of the signs             one bit a coordinate back
        worker:  x ← x − η(V + λx)

    Args:
        params: parameters or groups; lr, momentum and weight_decay may differ between groups.
        lr: η >= 0, the step of every coordinate.
        momentum: β in [0, 1).
        weight_decay: λ >= 0, decoupled: it never enters the vote.
        vote: who counts: a name (`--vote`), or a subclass of `Vote`.
        tie: a coordinate whose votes are even gets a "coin" that all share, "plus", or nothing ("abstain").
        zero: a momentum of exactly 0 votes by a "coin" of its worker's own, or "plus".
        seed: names the coins.
        comm: a mpisign Comm or an mpi4py communicator; COMM_WORLD by default.

    Raises:
        ParameterError, DisagreementError: see `DistributedOptimizer`.
    """

    default_lr: ClassVar[float] = 1e-3

    def __init__(
        self,
        params: Params,
        lr: float = default_lr,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        *,
        vote: str | type[Vote] = "server",
        tie: kernels.Tie = "coin",
        zero: kernels.Zero = "coin",
        seed: int = 0,
        comm: Any = None,
    ) -> None:
        self.tie, self.zero, self.seed = tie, zero, seed
        self._vote_type: type[Vote] = registry.load("vote", vote) if isinstance(vote, str) else vote
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}, comm)

    def check_group(self, group: dict[str, Any]) -> None:
        """Raise ParameterError where a group's hyperparameters can't be used."""
        super().check_group(group)
        if self.tie not in ("coin", "plus", "abstain") or self.zero not in ("coin", "plus"):
            raise ParameterError(
                f"tie is coin, plus or abstain and zero is coin or plus; got tie={self.tie!r}, zero={self.zero!r}"
            )

    def prepare(self) -> None:
        """Lay out ballot, verdict and momentum, keeping the momentum that is there."""
        parameters = self.parameters
        self.layout = kernels.Layout([p.numel() for p in parameters])
        self.ballot = torch.zeros(self.layout.message, dtype=torch.uint64)
        self.vote = self._vote_type(self.comm, self.layout, self.tie, self.seed, self.watch)
        self._coins = seeding.key(self.seed, self.comm.rank, "zeros")
        self._direct = [p.dtype == torch.float32 and _is_dense(p) for p in parameters]
        self._strides = [p.stride() for p in parameters]
        self._keep_momentum = any(group["momentum"] for group in self.param_groups)
        self._momentum = torch.zeros(64 * self.layout.words if self._keep_momentum else 0)
        for p, start, direct in zip(parameters, self.layout.starts, self._direct, strict=True):
            if self._keep_momentum:
                old = self.state[p].get("momentum")
                stride = p.stride() if direct else torch.empty(p.shape, device="meta").stride()
                self.state[p]["momentum"] = self._momentum.as_strided(p.shape, stride, 64 * int(start))
                if old is not None:
                    self.state[p]["momentum"].copy_(old)
            if p.dtype in (torch.float16, torch.bfloat16) and "master" not in self.state[p]:
                self.state[p]["master"] = p.detach().float()

    @property
    def bytes_up(self) -> int:
        """Bytes of a ballot."""
        return self.ballot.nbytes

    def update(self) -> Report:
        """Pack, vote, descend."""
        with self.watch("pack"):
            gradients = [self._gradient(index, p) for index, p in enumerate(self.parameters)]
            betas, gammas = self._each("momentum"), self._each("momentum", lambda beta: 1 - beta)
            momentum, key = (
                self._momentum if self._keep_momentum else None,
                kernels.stream(self._coins, self.steps_taken),
            )
            finite = kernels.sign_ballot(self.layout, gradients, momentum, betas, gammas, self.zero, key, self.ballot)
        verdict = self.vote(self.ballot, self.steps_taken)
        with self.watch("vote"):
            differ, voted = kernels.disagreement(self.ballot, verdict)  # now, while both are in the cache
        with self.watch("apply"):
            self._descend(verdict)
        return Report(verdict.voters, 1 - differ / voted if voted else float("nan"), finite)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore momentum and float32 copies bit for bit, whatever the parameters' dtype."""
        super().load_state_dict(state_dict)
        saved = [index for group in state_dict["param_groups"] for index in group["params"]]
        for p, index in zip(self.parameters, saved, strict=True):
            # torch casts what it loads to the parameter's dtype; these tensors must keep float32
            self.state[p] = {name: value.clone() for name, value in state_dict["state"].get(index, {}).items()}
        self.prepare()

    def _gradient(self, index: int, p: Tensor) -> Tensor | None:
        gradient = dense_gradient(p, index)
        if gradient is None:
            return None
        if self._direct[index]:
            if gradient.dtype == torch.float32 and gradient.stride() == self._strides[index]:
                return gradient
            return torch.empty_like(p).copy_(gradient)
        return gradient.to(torch.float32).contiguous()

    def _descend(self, verdict: kernels.Verdict) -> None:
        steps = self._each("lr")
        decays = self._spread([1 - float(group["lr"]) * float(group["weight_decay"]) for group in self.param_groups])
        parameters = self.parameters
        direct = [p if self._direct[index] else None for index, p in enumerate(parameters)]
        kernels.descend(direct, verdict, steps, decays)
        for index in np.flatnonzero(verdict.decided & ~np.array(self._direct, np.bool_)).tolist():
            p = parameters[index]
            target = self.state[p].get("master", p)
            signs = kernels.unpack(verdict, index).view(p.shape)
            target.mul_(float(decays[index])).add_(signs.to(target.dtype), alpha=-float(steps[index]))
            if target is not p:
                p.copy_(target)

    def _each(self, name: str, of: Any = float) -> kernels.Floats:
        return self._spread([of(float(group[name])) for group in self.param_groups])

    def _spread(self, values: list[float]) -> kernels.Floats:
        """Return float32[P], each group's value for each of its parameters."""
        return np.repeat(np.array(values, np.float32), [len(group["params"]) for group in self.param_groups])


class SignSGD(Signum):
    """signSGD with majority vote: Signum without momentum (Bernstein, Wang, Azizzadenesheli, Anandkumar 2018).

    A gradient of exactly 0 votes by the rule `zero`. Arguments as in `Signum`.
    """

    def __init__(
        self,
        params: Params,
        lr: float = Signum.default_lr,
        weight_decay: float = 0.0,
        *,
        vote: str | type[Vote] = "server",
        tie: kernels.Tie = "coin",
        zero: kernels.Zero = "coin",
        seed: int = 0,
        comm: Any = None,
    ) -> None:
        super().__init__(params, lr, 0.0, weight_decay, vote=vote, tie=tie, zero=zero, seed=seed, comm=comm)


def _is_dense(p: Tensor) -> bool:
    """Tell whether p fills its memory without gaps, in whatever order of dimensions."""
    expected = 1
    for stride, size in sorted(zip(p.stride(), p.shape, strict=True)):
        if size > 1 and stride != expected:
            return False
        expected *= size
    return True
