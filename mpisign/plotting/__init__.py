"""Pictures that explain: messages and votes of simulated runs, and the noise of gradients. Needs matplotlib."""

from .axes import COLORS
from .noise import histogram, rho_norms, snr, success, vote_failure
from .runs import messages, votes

__all__ = ["COLORS", "histogram", "messages", "rho_norms", "snr", "success", "vote_failure", "votes"]
