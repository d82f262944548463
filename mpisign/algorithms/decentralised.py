"""What methods share whose workers keep models of their own: one flat vector, a local step, and talk with neighbours."""

import abc
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from ..errors import ParameterError
from .base import DistributedOptimizer, Params, dense_gradient
from .local_steps import LOCAL_STEPS, LocalStep
from .reports import Report

Local = Literal["sgd", "damped", "adam"]


class Decentralised(DistributedOptimizer):
    """A worker's step is u = local(gradient), then `advance`, which a subclass writes: its rule, in two or three lines.

    Models differ between ranks. All parameters of a model are one vector, row-major one after another, float32, or
    float64 where any parameter is; half-precision parameters are trained through it. Momenta stay where they are. A
    worker without a gradient, or with one that is not finite, makes no step (u = 0, momentum as it was) but goes on
    passing on what others made. Adding a group starts again from rank 0's model; momenta stay.

    Args:
        params: parameters or groups; lr, momentum, weight_decay, nesterov, betas and eps may differ between groups.
        lr: step size >= 0.
        momentum: in [0, 1); of each worker's own.
        weight_decay: >= 0, added to the gradient.
        local: "sgd", "damped" (the momentum of the paper's simulators) or "adam" (with betas and eps).
        nesterov: Nesterov momentum, of "sgd".
        betas: of "adam".
        eps: of "adam".
        comm: a mpisign Comm or an mpi4py communicator; COMM_WORLD by default.

    `state_dict` also holds this rank's model and messages under way, and loading it restores them, each rank its own.

    Attributes:
        x: float[d], the model; u: float[d], the update.
        scale: what lr is multiplied by.
        stepped: whether this worker has made a step of its own in the last one.
        count: how many models the last average holds news of, this rank's included; `report.voters`.
    """

    replicated: ClassVar[bool] = False
    default_lr: ClassVar[float] = 0.1

    def __init__(
        self,
        params: Params,
        lr: float = default_lr,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        *,
        local: Local = "sgd",
        nesterov: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        comm: Any = None,
    ) -> None:
        self.local, self.scale, self.count, self.stepped = local, 1.0, 1, False
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "betas": betas,
            "eps": eps,
        }
        super().__init__(params, defaults, comm)

    # ---- for subclasses ----

    @abc.abstractmethod
    def advance(self, x: Tensor, u: Tensor) -> None:
        """Change the model x in place, with the local update u, which may be spoilt; all ranks call it together."""

    @abc.abstractmethod
    def connect(self) -> None:
        """Build what talks to the other ranks, for the present `x`, which is equal on all ranks."""

    def carried(self) -> dict[str, Tensor]:
        """Return by name what `advance` needs from the last step beside the model; waits for messages under way."""
        return {}

    def carry(self, vectors: dict[str, Tensor]) -> None:
        """Take up what `carried` gave."""

    def parts(self, vector: Tensor) -> list[Tensor]:
        """Return P views of a vector [d] in the parameters' shapes."""
        parameters = self.parameters
        blocks = torch.split(vector, [p.numel() for p in parameters])
        return [block.view(p.shape) for p, block in zip(parameters, blocks, strict=True)]

    @property
    def owners(self) -> list[dict[str, Any]]:
        """The group of each parameter."""
        return [group for group in self.param_groups for _ in group["params"]]

    @property
    def local_step(self) -> LocalStep:
        """The rule for u."""
        return LOCAL_STEPS[self.local]

    def check_group(self, group: dict[str, Any]) -> None:
        """Raise ParameterError where a group's hyperparameters can't be used."""
        super().check_group(group)
        if self.local not in LOCAL_STEPS:
            raise ParameterError(f"local must be one of {', '.join(LOCAL_STEPS)}; got {self.local!r}")
        if not all(0 <= float(beta) < 1 for beta in group["betas"]) or not group["eps"] >= 0:
            raise ParameterError(f"betas must be in [0, 1) and eps at least 0; got {group['betas']}, {group['eps']}")

    def settings(self) -> tuple[Any, ...]:
        """The local step."""
        return (self.local,)

    # ---- the step ----

    def prepare(self) -> None:
        """Lay out the vectors, from parameters that are equal on all ranks."""
        if self._ready:
            self.settle()
        wide = any(p.dtype == torch.float64 for p in self.parameters)
        self.x = torch.zeros(sum(p.numel() for p in self.parameters), dtype=torch.float64 if wide else torch.float32)
        self.u = torch.zeros_like(self.x)
        self._read()
        self.connect()

    def update(self) -> Report:
        """Step by oneself, then as the method has it."""
        with self.watch("pack"):
            self._read()
            finite = self._step_locally()
        with self.watch("apply"):
            self.advance(self.x, self.u)
            self._write()
        return Report(self.count, finite=finite)

    def _read(self) -> None:
        for p, part in zip(self.parameters, self.parts(self.x), strict=True):
            if part.dtype == p.dtype or not torch.equal(part.to(p.dtype), p):  # else x knows more digits
                part.copy_(p.detach())

    def _write(self) -> None:
        for p, part in zip(self.parameters, self.parts(self.x), strict=True):
            if p.requires_grad:
                p.copy_(part)

    def _step_locally(self) -> bool:
        """Fill u; return whether the whole gradient was finite."""
        self.u.zero_()
        gradients = [dense_gradient(p, index) for index, p in enumerate(self.parameters)]
        there = [gradient for gradient in gradients if gradient is not None]
        finite = all(bool(gradient.isfinite().all()) for gradient in there)
        self.stepped = finite and bool(there)
        if not finite:
            return False
        for p, group, gradient, x, u in zip(
            self.parameters, self.owners, gradients, self.parts(self.x), self.parts(self.u), strict=True
        ):
            if gradient is not None:
                decay, gradient = float(group["weight_decay"]), gradient.to(x.dtype)
                u.copy_(self.local_step(group, self.state[p], gradient + x * decay if decay else gradient))
        if self.scale != 1:
            self.u *= self.scale
        return True

    # ---- state ----

    def settle(self) -> None:
        """Wait for messages under way; call it at the end of a run."""
        self.carried()

    def state_dict(self) -> dict[str, Any]:
        """As every torch optimizer's, with this rank's model and messages in the first parameter's state."""
        state = super().state_dict()
        own = {f"own {name}": vector for name, vector in {"model": self.x, **self.carried()}.items()}
        if self.parameters:
            first = next(index for group in state["param_groups"] for index in group["params"])
            state["state"][first] = {**state["state"].get(first, {}), **own}
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` gave, this rank's model included; not collective, but every rank loads its own."""
        super().load_state_dict(state_dict)
        own = dict[str, Tensor]()
        for entry in (self.state[p] for p in self.parameters):
            own |= {name.removeprefix("own "): entry.pop(name) for name in list(entry) if name.startswith("own ")}
        if own:
            self.x.copy_(own.pop("model"))
            self.carry(own)
            with torch.no_grad():
                self._write()

    def adopt(self, state_dict: dict[str, Any], places: Sequence[int]) -> None:
        """Take up this worker's model and momentum, and talk to the present neighbours from there on."""
        super().adopt(state_dict, places)
        models = [entry["own model"] for entry in state_dict["state"].values() if "own model" in entry]
        with torch.no_grad():
            for model in models:
                self.x.copy_(model)
                self._write()
        self.connect()
