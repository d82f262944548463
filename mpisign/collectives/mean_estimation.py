"""The mean of all that all ranks have drawn so far, each sample known where it was drawn: relayed, exact but for the delay."""

import torch
from torch import Tensor

from .striped import Striped


class MeanEstimation:
    """estimate = (relayed sums so far) / (their counts so far), a sample a rank and call.

    After T calls each rank's estimate is the mean of all n·T samples but those still under way, so that its squared error
    goes as 1/(nT); gossip is that good in the long run only. Source: Vogels et al. 2021, algorithm 5.

    Args:
        relay: adds the samples along trees.
        numel: the length of a sample.
        dtype: of the samples.
    """

    def __init__(self, relay: Striped, numel: int, dtype: torch.dtype = torch.float64) -> None:
        self.relay = relay
        self._total = torch.zeros(numel, dtype=dtype)
        self._counts = [0] * len(relay.relays)
        self.estimate = torch.full((numel,), float("nan"), dtype=dtype)

    def __call__(self, sample: Tensor) -> Tensor:
        """Add a sample [numel]; return the estimate, which is valid until the next call. All ranks call it together."""
        parts = zip(self.relay.parts(self._total), self.relay.parts(self.estimate), self.relay(sample), strict=True)
        for number, (total, estimate, (added, count)) in enumerate(parts):
            total += added
            self._counts[number] += count
            torch.div(total, self._counts[number], out=estimate)
        return self.estimate
