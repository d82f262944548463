"""One method, one file: each a `torch.optim.Optimizer` whose step is taken by all ranks together."""

from .base import DistributedOptimizer, Report
from .sgd import SGD
from .signum import SignSGD, Signum

__all__ = ["SGD", "DistributedOptimizer", "Report", "SignSGD", "Signum"]
