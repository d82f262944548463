"""Pictures that explain: messages and votes of simulated runs, the noise of gradients, who has which data. Needs matplotlib."""

from .axes import COLORS
from .landscapes import landscape
from .liars import agreement
from .noise import histogram, rho_norms, snr, success, vote_failure
from .partitions import classes
from .runs import messages, votes
from .sliders import slider

__all__ = [
    "COLORS",
    "agreement",
    "classes",
    "histogram",
    "landscape",
    "messages",
    "rho_norms",
    "slider",
    "snr",
    "success",
    "vote_failure",
    "votes",
]
