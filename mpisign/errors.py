"""Every exception that mpisign raises on purpose.

Each message says what came, what was wanted and what to do. They all derive from `MpisignError`, so that the command
line can tell a user's mistake (one line, exit code 2) from a fault of the program (a traceback).
"""


class MpisignError(Exception):
    """Base of all errors raised on purpose; `everywhere` says that every rank raises it at the same place."""

    everywhere = False


class ConfigError(MpisignError, ValueError):
    """An option, a TOML file or a combination of settings that can't be used."""


class DataError(MpisignError, ValueError):
    """A data file that is missing, damaged or not of the expected format."""


class EnvironmentProblem(MpisignError, RuntimeError):
    """The surroundings (MPI, launcher, threads, device) would make training go wrong."""


class ParameterError(MpisignError, ValueError):
    """Parameters or gradients that an optimizer can't train."""


class TopologyError(MpisignError, ValueError):
    """A graph that is not what the algorithm needs."""


class DisagreementError(MpisignError, RuntimeError):
    """Ranks hold different values of something that must be equal on all."""


class QuorumError(MpisignError, ValueError):
    """Fewer workers take part than a method needs."""


class DeadlockError(MpisignError, RuntimeError):
    """Simulated ranks wait for one another and none can go on."""
