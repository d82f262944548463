"""What the sign family shares: parameters of any dtype and strides as float32 coordinates in the order of the words."""

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from .. import kernels
from .base import DistributedOptimizer, dense_gradient


class FlatOptimizer(DistributedOptimizer):
    """Keeps one float32 vector (a momentum, a residual) over all parameters, and steps along float32 directions.

    A dense float32 parameter is read and changed in memory order, any other in row-major order; float16 and bfloat16 are
    trained through a float32 copy. A subclass names the vector in `kept`, builds its collective in `connect`, and writes
    `update`.

    Attributes:
        layout: where each parameter's signs stand.
        memory: float32[64 * layout.words], the vector; parameter p's part begins at 64·starts[p]. Empty where `keeps`
            says no.
        direct: bool[P], the parameters that are changed where they lie.
        owners: the group of each parameter.
    """

    kept: ClassVar[str]

    def keeps(self) -> bool:
        """Tell whether the vector is needed with the present hyperparameters."""
        return True

    @abc.abstractmethod
    def connect(self) -> None:
        """Build what talks to the other ranks, for the present `layout`."""

    def prepare(self) -> None:
        """Lay out the memory, keeping the memory that is there."""
        parameters = self._tensors = self.parameters
        self.owners = [group for group in self.param_groups for _ in group["params"]]
        self.layout = kernels.Layout([p.numel() for p in parameters])
        self.memory = torch.zeros(64 * self.layout.words if self.keeps() else 0, device=self.device)
        self.direct = np.array([p.dtype == torch.float32 and _is_dense(p) for p in parameters], np.bool_)
        self._strides = [p.stride() for p in parameters]
        for index, p in enumerate(parameters):
            old = self.state[p].get(self.kept)
            if old is not None and self.keeps():
                self.remember(index)
                self.state[p][self.kept].copy_(old)
            if p.dtype in (torch.float16, torch.bfloat16) and "master" not in self.state[p]:
                self.state[p]["master"] = p.detach().float()
        self.connect()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore memory and float32 copies bit for bit, whatever the parameters' dtype."""
        super().load_state_dict(state_dict)
        self.prepare()

    def remember(self, index: int) -> None:
        """Let the parameter's part of the memory be seen, and saved, as its state, with its shape."""
        p = self._tensors[index]
        stride = self._strides[index] if self.direct[index] else torch.empty(p.shape, device="meta").stride()
        self.state[p][self.kept] = self.memory.as_strided(p.shape, stride, 64 * int(self.layout.starts[index]))

    def remembers(self, index: int) -> bool:
        """Tell whether the parameter's part of the memory is in use."""
        return self.kept in self.state[self._tensors[index]]

    def parts(self, vector: Tensor) -> list[Tensor]:
        """float32[64 * layout.words] -> P views float32[numel]."""
        return [
            vector[64 * start : 64 * start + numel]
            for start, numel in zip(self.layout.starts.tolist(), self.layout.numels.tolist(), strict=True)
        ]

    def gradients(self) -> list[Tensor | None]:
        """Return P tensors float32[numel] in the order of the words, None where there is no gradient."""
        return [self.gradient(index) for index in range(len(self._tensors))]

    def gradient(self, index: int) -> Tensor | None:
        """Return one parameter's gradient, as in `gradients`."""
        p = self._tensors[index]
        gradient = dense_gradient(p, index)
        if gradient is None:
            return None
        if not self.direct[index]:
            return gradient.to(torch.float32).contiguous()
        if gradient.dtype == torch.float32 and gradient.stride() == self._strides[index]:
            return gradient
        return torch.empty_like(p).copy_(gradient)

    def norm_of(self, index: int) -> float:
        """Return the Euclidean norm of a parameter, with the same bits on all ranks."""
        p = self._tensors[index]
        vector = p if self.direct[index] else p.to(torch.float32).contiguous()
        return float(kernels.l2_norm(self.layout.run(index, index + 1), [vector]))

    def move(self, index: int, direction: Tensor, step: float, decay: float | None = None) -> None:
        """x ← decay·x − step·direction; `direction` is spoilt. By default decay is 1 − ηλ of the parameter's group.

        Both factors are rounded to float32. Two products and a difference: torch's own `alpha` may fuse them on some CPUs.
        """
        p, group = self._tensors[index], self.owners[index]
        if decay is None:
            decay = float(np.float32(1 - float(group["lr"]) * float(group["weight_decay"])))
        direction.mul_(float(np.float32(step)))
        if self.direct[index]:
            p.as_strided((p.numel(),), (1,), p.storage_offset()).mul_(decay).sub_(direction)
            return
        target = self.state[p].get("master", p)
        if target is not p:
            _follow(target, p)
        target.mul_(decay).sub_(direction.view(p.shape))
        if target is not p:
            p.copy_(target)

    def each(self, of: Callable[[dict[str, Any]], float]) -> kernels.Floats:
        """float32[P]: what `of` says of each parameter's group."""
        values = np.array([of(group) for group in self.param_groups], np.float32)
        return np.repeat(values, [len(group["params"]) for group in self.param_groups])


def _follow(master: Tensor, p: Tensor) -> None:
    """Let the float32 copy be p again, where somebody has changed p since."""
    if not p.is_cuda:
        if not torch.equal(master.to(p.dtype), p):
            master.copy_(p)
        return
    same = (master.to(p.dtype) == p).all()  # torch.equal would wait for the device
    master.copy_(torch.where(same, master, p.to(master.dtype)))


def _is_dense(p: Tensor) -> bool:
    """Tell whether p fills its memory without gaps, in whatever order of dimensions."""
    expected = 1
    for stride, size in sorted(zip(p.stride(), p.shape, strict=True)):
        if size > 1 and stride != expected:
            return False
        expected *= size
    return True
