"""All-reduce of models after local steps: what decentralised methods are compared with."""

from typing import ClassVar

import torch
from torch import Tensor

from .decentralised import Decentralised


class AllReduceModel(Decentralised):
    """x ← mean of all workers' x + u, with momenta that stay where they are.

    Since all begin with the same x, the mean is x + mean of u, which is how it is computed: models stay equal to the bit,
    and a step in which nobody has a gradient changes none. By linearity the same as momentum on the mean gradient.

    Arguments as in `Decentralised`.
    """

    replicated: ClassVar[bool] = True
    default_lr: ClassVar[float] = 0.1

    def connect(self) -> None:
        """Lay out the message, an update and whether there is one."""
        self._message = torch.zeros(len(self.x) + 1, dtype=self.x.dtype)

    @property
    def bytes_up(self) -> int:
        """Bytes of the vector that is summed."""
        return self._message.nbytes

    def advance(self, x: Tensor, u: Tensor) -> None:
        """x ← x + mean of u."""
        self._message[:-1], self._message[-1] = u, self.stepped
        with self.watch("communicate"):
            self.comm.allreduce(self._message)
        self.count = int(self._message[-1])
        x += self._message[:-1] / self.comm.size
