"""What all contract checks share: the numbers of ranks and steps that they run with, and how they fail."""

RANKS = (1, 2, 3, 4, 7)
"""Numbers of ranks that checks run with: powers of two alone would hide faults."""

STEPS = 6


def require(fact: bool, otherwise: str) -> None:
    """Raise AssertionError unless it is a fact."""
    if not fact:
        raise AssertionError(otherwise)
