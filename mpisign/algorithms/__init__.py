"""One method, one file: each a `torch.optim.Optimizer` whose step is taken by all ranks together."""

from .adam import Adam
from .allreduce_model import AllReduceModel
from .base import DistributedOptimizer
from .d2 import D2, ExactDiffusion
from .dpsgd import DPSGD
from .ef_signsgd import EFSignSGD
from .gradient_tracking import GradientTracking
from .lion import Lion
from .quasi_global import QuasiGlobal
from .relay_mix import RelayMix
from .relay_signum import RelaySignum, StaleRelaySignum
from .relaysgd import RelaySGD
from .relaysgd_grad import RelaySGDGrad
from .reports import Report
from .sgd import SGD
from .sgp import StochasticGradientPush
from .signum import SignSGD, Signum
from .ssdm import SSDM

__all__ = [
    "D2",
    "DPSGD",
    "SGD",
    "SSDM",
    "Adam",
    "AllReduceModel",
    "DistributedOptimizer",
    "EFSignSGD",
    "ExactDiffusion",
    "GradientTracking",
    "Lion",
    "QuasiGlobal",
    "RelayMix",
    "RelaySGD",
    "RelaySGDGrad",
    "RelaySignum",
    "Report",
    "SignSGD",
    "Signum",
    "StaleRelaySignum",
    "StochasticGradientPush",
]
