"""Every exception that mpisign raises on purpose.

Each message says what came, what was wanted and what to do. They all derive from `MpisignError`, so that the command
line can tell a user's mistake (one line, exit code 2) from a fault of the program (a traceback).
"""

from typing import Any


class MpisignError(Exception):
    """Base of all errors raised on purpose.

    Attributes:
        everywhere: whether every rank raises it at the same place.
        speaks: whether this rank is to report such an error.
        code: the exit code of a command that ends with it.
    """

    everywhere = False
    speaks = True
    code = 2


class ConfigError(MpisignError, ValueError):
    """An option, a TOML file or a combination of settings that can't be used."""


class DataError(MpisignError, ValueError):
    """A data file that is missing, damaged or not of the expected format."""


class CheckpointError(MpisignError, RuntimeError):
    """A checkpoint that can't be written, or is incomplete, damaged, or of something else than its name says."""


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


class RankFailure(MpisignError, RuntimeError):
    """Another rank has died, or says that one has: the ranks that are left go on with `Comm.survivors`."""


class LeftBehind(MpisignError, RuntimeError):
    """Of a rank that was late, and without which the others have gone on: it takes up their state.

    Args:
        state: uint8[n], as rank 0 gave it to `Comm.readmit`.
    """

    def __init__(self, state: Any) -> None:
        super().__init__("this rank was late, and the others have gone on without it")
        self.state = state


class RanksFailed(MpisignError, RuntimeError):
    """A rank of a notebook's cell failed, or its ranks did not end in time; the message has the first one's traceback."""

    def _render_traceback_(self) -> list[str]:
        """What IPython shows: the ranks' own story, without the frames of the magic that tells it."""
        return [f"{type(self).__name__}: {self}"]

    code = 75


class Deserted(MpisignError, RuntimeError):
    """So many ranks are gone that those that are left must not go on: the others may do so without them."""

    code = 75


class Interrupted(MpisignError):
    """A run was asked to stop, and has written a checkpoint to go on from."""

    code = 85
