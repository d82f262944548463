"""Pictures that explain: messages, votes, words, curves, noise, data, liars, trees, landscapes, machines. Needs matplotlib."""

from .axes import COLORS
from .curves import curves
from .landscapes import landscape
from .liars import agreement
from .machines import machines
from .networks import network
from .noise import histogram, rho_norms, snr, success, vote_failure
from .partitions import classes
from .phases import phases
from .pictures import pictures
from .runs import messages, votes
from .sliders import slider
from .timelines import timeline
from .waiting import waits
from .words import words

__all__ = [
    "COLORS",
    "agreement",
    "classes",
    "curves",
    "histogram",
    "landscape",
    "machines",
    "messages",
    "network",
    "phases",
    "pictures",
    "rho_norms",
    "slider",
    "snr",
    "success",
    "timeline",
    "vote_failure",
    "votes",
    "waits",
    "words",
]
