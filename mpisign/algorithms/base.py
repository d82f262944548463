"""What all algorithms share: being a torch optimizer, and starting from the same parameters on every rank."""

import abc
import hashlib
import inspect
import numbers
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..comm import as_comm
from ..comm.buffers import Staging, staging_for
from ..errors import DisagreementError, ParameterError
from ..timing import Stopwatch
from .reports import LateReport, Report
from .weights import broadcast

Params = Iterable[Any]

LARGEST = 1e30
"""Hyperparameters stay below it, so that a step is finite in float32."""


def _unwrapped(method: Any) -> Any:
    """torch's own method without the wrapper that imports torch._dynamo: that takes as long as importing torch itself."""
    return inspect.unwrap(method)


_add_param_group = _unwrapped(torch.optim.Optimizer.add_param_group)
_state_dict = _unwrapped(torch.optim.Optimizer.state_dict)
_load_state_dict = _unwrapped(torch.optim.Optimizer.load_state_dict)


class DistributedOptimizer(torch.optim.Optimizer, abc.ABC):
    """Base of all algorithms; a subclass writes `update`, and `prepare` for what depends on the parameters.

    Constructing is collective: every rank does it together. What is wrong on one rank is raised on all of them, ranks
    with different parameters or hyperparameters get a DisagreementError, and all start from rank 0's parameters. Buffers
    of a model (BatchNorm statistics) are not parameters: see `mpisign.broadcast_buffers`.

    Parameters may be float32, float64, float16 or bfloat16, of any shape and strides, frozen, shared or empty. A
    parameter without a gradient on some ranks is decided by the others; without any it stays as it is. float16 and
    bfloat16 parameters are trained through a float32 copy, since a small step is lost in their rounding.

    Args:
        params: parameters or groups, as for every torch optimizer.
        defaults: hyperparameters of the groups.
        comm: a mpisign Comm or an mpi4py communicator; COMM_WORLD by default.

    Raises:
        ParameterError: a complex, integer or sparse parameter, parameters on several devices, or on one that the algorithm
            doesn't work on, or a bad hyperparameter.
        DisagreementError: ranks differ.
    """

    default_lr: ClassVar[float]
    replicated: ClassVar[bool] = True
    """Whether parameters end equal on all ranks; where not, each rank has a model of its own."""

    shared: ClassVar[tuple[str, ...]] = ("own model", "model", "master")
    """What of a parameter's state is the model's, and not this rank's own: a newcomer gets it from another rank."""

    on_gpu: ClassVar[bool] = False
    """Whether parameters may be on a GPU, all on one."""

    _step_supports_amp_scaling = (
        True  # torch's GradScaler then calls step on every rank, also where it found an overflow
    )

    zero_grad = _unwrapped(torch.optim.Optimizer.zero_grad)

    def __init__(self, params: Params, defaults: dict[str, Any], comm: Any = None) -> None:
        self.comm = as_comm(comm)
        self.watch = Stopwatch()
        self.report = Report()
        self.steps_taken = 0
        self._ready, self._warned = False, False
        self.staging: Staging | None = None

        def construct() -> None:
            # not super(): a subclass may also derive from torch's SGD
            torch.optim.Optimizer.__init__(self, params, defaults)
            self._check()

        self.comm.together(construct, ParameterError)
        self._start()

    # ---- for subclasses ----

    @property
    def parameters(self) -> list[Tensor]:
        """The parameters of all groups, in order."""
        return [p for group in self.param_groups for p in group["params"]]

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next((p.device for p in self.parameters), torch.device("cpu"))

    @abc.abstractmethod
    def update(self) -> Report:
        """Do one step: all ranks call it together, and parameters end equal on all, if the method is `replicated`."""

    def prepare(self) -> None:
        """Lay out buffers for `parameters`; called at construction and whenever a group is added."""

    def check_group(self, group: dict[str, Any]) -> None:
        """Raise ParameterError where a group's hyperparameters can't be used."""
        for name, high in (("lr", LARGEST), ("momentum", 1.0), ("weight_decay", LARGEST)):
            if name not in group:
                continue
            value = group[name]
            number = isinstance(value, numbers.Real) and not isinstance(value, bool)
            if not number and not (isinstance(value, Tensor) and value.numel() == 1):
                raise ParameterError(f"{name} must be a number, got {type(value).__name__}: {value!r}")
            if not 0 <= float(value) < high:
                raise ParameterError(f"{name} must be at least 0 and below {high:g}, got {value}")
            if number:
                group[name] = float(value)  # a NumPy number would be refused by torch.load's safe mode
        if "lr" in group and float(group["lr"]) * float(group.get("weight_decay", 0)) >= LARGEST:
            raise ParameterError(
                f"lr * weight_decay must be below {LARGEST:g}, got {group['lr']} * {group['weight_decay']}"
            )

    def settings(self) -> tuple[Any, ...]:
        """What must be equal on all ranks beside parameters and groups."""
        return ()

    @property
    def late(self) -> int:
        """How many steps old the gradients are that a step is made of."""
        return 0

    @property
    def bytes_up(self) -> int:
        """Bytes that a worker hands to the vote or mean in each step."""
        return 0

    def conclude(self) -> None:
        """Finish, on all ranks together and as part of a step, what backward has begun, so that verbs can be called."""

    def settle(self) -> None:
        """Wait, between two steps, for messages that are still under way; call it at the end of a run."""

    def skip(self) -> Report:
        """Forget the step that was begun: parameters and state stay as they were before it."""
        return Report()

    # ---- for users ----

    def no_sync(self) -> AbstractContextManager[None]:
        """Return a context in which backward accumulates gradients and sends nothing.

        Only algorithms that send during backward need it; a loop may use it with all.
        """
        return nullcontext()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step, on all ranks together; a rank without gradients calls it too, and abstains.

        With a torch.amp.GradScaler, `scaler.step(optimizer)` unscales the gradients first; where any rank's overflowed,
        all skip the step together, and it changes nothing.

        Args:
            closure: reevaluates the model and returns the loss, which is returned.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            if self._overflowed():
                self.report = self.skip()
                return loss
            self._unscale()
            before, self.report = self.report, self.update()
        late = isinstance(self.report, LateReport)
        # a GPU is never waited for: it is the step before that is known by now
        if not self._warned and not (before if late else self.report).finite:
            self._warned = True
            warnings.warn(
                f"rank {self.comm.rank}: the gradient of step {self.steps_taken - late} is not finite; this worker abstains from "
                f"the step, the others go on. Further such steps are counted without a warning.",
                RuntimeWarning,
                stacklevel=2,
            )
        self.steps_taken += 1
        return loss

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group; after construction this is collective, like the construction itself."""
        if not self._ready:
            _add_param_group(self, param_group)
            return

        groups = len(self.param_groups)

        def add() -> None:
            try:
                _add_param_group(self, param_group)
                self._check()
            except Exception:
                del self.param_groups[groups:]
                raise

        self.comm.together(add, ParameterError)
        self._start()

    def state_dict(self) -> dict[str, Any]:
        """As every torch optimizer's; each group also holds the number of steps taken, and its parameters' shapes."""
        state: dict[str, Any] = _state_dict(self)
        for saved, group in zip(state["param_groups"], self.param_groups, strict=True):
            saved |= {"steps_taken": self.steps_taken, "shapes": _shapes(group)}
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` gave; not collective, but every rank must load its own.

        Raises:
            ParameterError: it is another model's, or holds a bad hyperparameter; nothing has changed then.
            ValueError: it has other groups; nothing has changed then either.
        """
        for number, (saved, group) in enumerate(zip(state_dict["param_groups"], self.param_groups, strict=False)):
            self.check_group(dict(saved))
            shapes = _shapes(group)
            if saved.get("shapes", shapes) != shapes:  # older states have none
                raise ParameterError(
                    f"the state to load is another model's: the parameters of group {number} had shapes "
                    f"{_in_short(saved['shapes'])}, those here have {_in_short(shapes)}; nothing was loaded"
                )
        _load_state_dict(self, state_dict)
        saved_as = [index for group in state_dict["param_groups"] for index in group["params"]]
        for p, index in zip(self.parameters, saved_as, strict=True):
            # torch casts what it loads to the parameter's dtype; residuals, float32 copies and messages must keep theirs
            kept = state_dict["state"].get(index, {})
            self.state[p] = {
                name: _copied(value, "cpu" if name == "step" else p.device) for name, value in kept.items()
            }
        for group in self.param_groups:
            self.steps_taken = int(group.pop("steps_taken", 0))
            group.pop("shapes", None)
            self.check_group(group)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refuse to be copied or pickled: what talks to other ranks can't be."""
        raise TypeError(
            f"{type(self).__name__} talks to other ranks and can't be copied or pickled: copy its state_dict(), and load it "
            f"into an optimizer built anew on every rank"
        )

    def adopt(self, state_dict: dict[str, Any], places: Sequence[int]) -> None:
        """Take up what a worker saved among other ranks than these: what is its own, but no messages under way.

        Not collective, but every rank must do it.

        Args:
            state_dict: what `state_dict` gave.
            places: for each of these ranks its number then; -1 for one that is new.
        """
        states = state_dict["state"]
        self.load_state_dict(state_dict | {"state": {index: _without_messages(states[index]) for index in states}})

    # ---- loss scaling ----

    def _overflowed(self) -> bool:
        """Tell, on all ranks alike, whether a GradScaler has found an overflow on any of them."""
        found = getattr(self, "found_inf", None)
        if found is None:
            return False
        self.conclude()
        return bool(self.comm.allreduce(torch.tensor([int(float(found) != 0)]), "max"))

    def _unscale(self) -> None:
        scale: Any = getattr(self, "grad_scale", None)
        if scale is None:
            return
        factor = float(scale)  # once: on a GPU it is waited for
        for p in self.parameters:
            if p.grad is not None:
                p.grad.div_(factor)

    # ---- start ----

    def _check(self) -> None:
        for group in self.param_groups:
            self.check_group(group)
        for index, p in enumerate(self.parameters):
            if not p.is_floating_point() or p.dtype.itemsize < 2:
                raise ParameterError(
                    f"parameter {index} is {p.dtype}: only float32, float64, float16 and bfloat16 can be trained"
                )
            if p.layout != torch.strided:
                raise ParameterError(f"parameter {index} is {p.layout}: only dense parameters can be trained")
            self._check_device(index, p.device)

    def _check_device(self, index: int, device: torch.device) -> None:
        if device.type not in ("cpu", "cuda"):
            raise ParameterError(f"parameter {index} is on {device}: move the model to the CPU or to a GPU of CUDA")
        if device.type == "cuda" and not self.on_gpu:
            raise ParameterError(
                f"parameter {index} is on {device}, where {type(self).__name__} doesn't work: move the model to the CPU, or use "
                f"Signum, SignSGD, Lion, SGD or Adam"
            )
        if device != self.device:
            raise ParameterError(
                f"parameter {index} is on {device}, parameter 0 on {self.device}: move the model to one device"
            )

    def _start(self) -> None:
        self.comm.insist(
            self._fingerprint(),
            DisagreementError(
                f"rank {self.comm.rank}: ranks have different parameters (number, order, shapes, dtypes, strides) or "
                f"hyperparameters; this rank has {len(self.parameters)} parameters with "
                f"{sum(p.numel() for p in self.parameters)} coordinates and {self.defaults}. "
                f"Build the same model, and the same optimizer, on every rank"
            ),
        )
        with torch.no_grad():
            broadcast(self.parameters, self.comm)
        if self.staging is None:
            self.staging = staging_for(self.device)
        self.prepare()
        self._ready = True

    def _fingerprint(self) -> int:
        groups = [{key: value for key, value in group.items() if key != "params"} for group in self.param_groups]
        tensors = [(tuple(p.shape), p.stride(), str(p.dtype)) for p in self.parameters]
        text = repr((type(self).__name__, groups, tensors, self.settings()))
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "little")


def _shapes(group: dict[str, Any]) -> list[list[int]]:
    return [list(p.shape) for p in group["params"]]


def _copied(value: Any, device: torch.device | str) -> Any:
    return value.to(device, copy=True) if isinstance(value, Tensor) else value


def _in_short(shapes: list[list[int]]) -> str:
    return " ".join("x".join(map(str, shape)) or "()" for shape in shapes[:8]) + (" …" if len(shapes) > 8 else "")


def _without_messages(state: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in state.items() if not name.startswith("own ")}


def dense_gradient(p: Tensor, index: int) -> Tensor | None:
    """Return p.grad, or None where there is none; a sparse one raises ParameterError."""
    if p.grad is not None and p.grad.layout != torch.strided:
        raise ParameterError(
            f"parameter {index} has a sparse gradient, which can't be voted on: build the layer with sparse=False"
        )
    return p.grad
