"""What a probe does in a process of its own: MPI is given addresses of a GPU's memory, and may crash, hang or lie.

`mpirun -n 2 python -m mpisign.comm.probing DEVICE SECONDS FOLDER`. Each rank leaves a file in FOLDER, "control", once messages
between ordinary memory have come, and "passed", once those between the memory of DEVICE have; or "wrong", and in it what brought
wrong bytes. DEVICE may be cpu.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

SIZES = (8, 1 << 16)
"""Words of a message: one that travels with its envelope, and one that doesn't."""


def exercise(comm: Any, make: Callable[[Any], Any], read: Callable[[Any], Any], fence: Callable[[], None]) -> str:
    """Try what training uses, and a little more, between two ranks; return what brought wrong bytes, or "".

    Args:
        comm: an mpi4py communicator of two ranks.
        make: makes a buffer of an array of int64.
        read: returns what a buffer holds.
        fence: waits until the buffers are made.
    """
    me, other = comm.Get_rank(), 1 - comm.Get_rank()
    for size in SIZES:
        words = [np.arange(size, dtype=np.int64) * 0x9E3779B1 + rank for rank in (0, 1)]
        for name in ("send and recv", "isend and irecv", "bcast"):
            mine, theirs = make(words[me]), make(np.zeros(size, np.int64))
            fence()
            if name == "send and recv":
                for sender in (0, 1):
                    if me == sender:
                        comm.Send(mine, other, 1)
                    else:
                        comm.Recv(theirs, other, 1)
            elif name == "isend and irecv":
                for request in [comm.Irecv(theirs, other, 2), comm.Isend(mine, other, 2)]:
                    request.Wait()
            else:
                theirs = mine if me == 0 else theirs
                comm.Bcast(theirs, 0)
            expected = words[0] if name == "bcast" else words[other]
            if not np.array_equal(read(theirs), expected):
                return f"{name} of {8 * size} bytes"
    return ""


def main(device: str, seconds: str, folder: str) -> int:
    """Exercise, first between ordinary memory."""
    signal.alarm(int(seconds))  # whatever becomes of the launcher, and from inside a blocked MPI call
    import torch

    place = torch.device(device)
    if place.type == "cuda":
        torch.cuda.set_device(place)  # before MPI_Init
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    if comm.size != 2:
        print(f"{comm.size} rank: this mpirun doesn't start ranks of this Python's MPI", flush=True)
        return 1

    def on_device(words: Any) -> Any:
        tensor = torch.from_numpy(words.copy()).to(place)
        return tensor if place.type == "cuda" else tensor.numpy()

    def read(buffer: Any) -> Any:
        return buffer.cpu().numpy() if isinstance(buffer, torch.Tensor) else buffer

    for stage, make in (("control", lambda words: words.copy()), ("passed", on_device)):
        wrong = exercise(comm, make, read, torch.cuda.synchronize if place.type == "cuda" else lambda: None)
        Path(folder, f"{'wrong' if wrong else stage}.{os.getpid()}").write_text(wrong)
        if wrong:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
