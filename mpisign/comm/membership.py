"""Who the ranks are, and who goes on when some have died."""

import os
import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, NoReturn

from ..errors import ConfigError, Deserted

if TYPE_CHECKING:
    from .base import Comm


class Membership:
    """The part of a communicator that knows of ranks and machines, but of no messages.

    Attributes:
        rank: this one's number, from 0 on.
        size: how many there are.
        nodes: the ranks of each machine, in ascending order, the machine with rank 0 first.
        members: the number that each rank had before others died; range(size) where none has.
        founders: how many ranks there were then.
    """

    joined: bool = False
    """Whether this process has come in the place of one that died."""

    resilient: ClassVar[bool] = False
    """Whether a rank's death is a RankFailure, in some verb on each of the others, and they can go on."""

    def __init__(self, rank: int, size: int, nodes: Sequence[Sequence[int]] | None = None) -> None:
        self.rank, self.size = rank, size
        self.nodes = tuple(map(tuple, nodes or [range(size)]))
        self.members, self.founders = tuple(range(size)), size

    def survivors(self) -> "Comm":
        """Return, after a RankFailure, the communicator of the ranks that are left, in their order; this one is of no more use.

        Collective among those that are left: each calls it where it caught the RankFailure, and those that have met none
        yet meet one in the verb they are in, or in their next one.

        Raises:
            Deserted: these ranks can't go on without the others.
        """
        raise Deserted(
            "a rank has died, and this MPI can't go on without it: start again with --resume auto, or use Open MPI 5 and "
            "mpirun --with-ft ulfm"
        )

    def check_majority(self, left: Sequence[int]) -> None:
        """Raise Deserted where only these of the ranks, which are on several machines, are left, and others may go on elsewhere.

        After a partition of the network both sides find that the others are gone. The larger one goes on; of two halves that
        with the lowest rank.
        """
        if len(self.nodes) > 1 and 2 * len(left) + (0 in left) <= self.size:
            raise Deserted(
                f"only {len(left)} of {self.size} ranks are left, on several machines: the others may have been cut off "
                f"and go on by themselves; start again with --resume auto"
            )

    def all_know(self) -> None:
        """Return when all ranks know what the last verb told them, so that they may end: to others that is a failure."""

    def rescue(self) -> bool:
        """Where ranks stand still, do what may help, and tell whether anything was done."""
        return False

    def refilled(self, command: Sequence[str]) -> "Comm":
        """Return the communicator of these ranks and of new processes, started by a command, in the places of those that died.

        Collective; a process that joins does so where it makes its communicator.

        Raises:
            ConfigError: no process can join here.
        """
        raise ConfigError("--respawn: no process can join here; use Open MPI 5 and mpirun --with-ft ulfm")

    def die(self) -> NoReturn:
        """End this rank at once and without a word, as a broken machine does."""
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("killed")

    def _nodes_of(self, ranks: Sequence[int]) -> list[list[int]]:
        """The machines of some ranks, in the numbers that these get in a part."""
        return [part for node in self.nodes if (part := [ranks.index(rank) for rank in node if rank in ranks])]
