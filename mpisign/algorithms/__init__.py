"""One method, one file: each a `torch.optim.Optimizer` whose step is taken by all ranks together."""

from .adam import Adam
from .base import DistributedOptimizer, Report
from .ef_signsgd import EFSignSGD
from .lion import Lion
from .sgd import SGD
from .signum import SignSGD, Signum
from .ssdm import SSDM

__all__ = ["SGD", "SSDM", "Adam", "DistributedOptimizer", "EFSignSGD", "Lion", "Report", "SignSGD", "Signum"]
