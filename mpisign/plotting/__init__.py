"""Pictures that explain: messages and votes of simulated runs, the noise of gradients, who has which data. Needs matplotlib."""

from .axes import COLORS
from .landscapes import landscape
from .noise import histogram, rho_norms, snr, success, vote_failure
from .partitions import classes
from .runs import messages, votes

__all__ = [
    "COLORS",
    "classes",
    "histogram",
    "landscape",
    "messages",
    "rho_norms",
    "snr",
    "success",
    "vote_failure",
    "votes",
]
