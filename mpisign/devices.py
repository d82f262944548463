"""Which device a rank computes on: chosen by its number on its host, before MPI starts and before anything else touches CUDA."""

import importlib.util
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .environment import Launch
from .errors import EnvironmentProblem

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Choice:
    """What a rank computes on.

    Attributes:
        name: "cpu", or a GPU as in "cuda:1".
        problem: why it can't be; "" where it can.
        devices: GPUs that this rank sees.
        ranks: those of this host; 1 where the launcher doesn't say.
    """

    name: str
    problem: str = ""
    devices: int = 0
    ranks: int = 1

    def check(self) -> None:
        """Raise EnvironmentProblem where there is a problem."""
        if self.problem:
            raise EnvironmentProblem(self.problem)

    @property
    def remark(self) -> str:
        """What to say of it; "" for nothing."""
        if not self.devices or self.ranks <= self.devices:
            return ""
        shared = "share the only GPU" if self.devices == 1 else f"share {self.devices} GPUs"
        return f"{self.ranks} ranks on this host {shared} that each of them sees: right, but none is faster for it"


def choose(wanted: str, launch: Launch) -> Choice:
    """Choose a device, and make it torch's current one; what is wrong is returned, since other ranks may find nothing wrong.

    "cuda" is the GPU of this rank's number on its host, modulo the number of GPUs that it sees; where the launcher tells no
    such number, of its number in the job. "cuda:1" is that one for all. To be called before MPI_Init: a CUDA-aware MPI opens
    the device that is then the current one.
    """
    if wanted == "cpu":
        return Choice("cpu")
    if found := problem(wanted):
        return Choice(wanted, found)
    import torch

    devices, (_, colon, number) = torch.cuda.device_count(), wanted.partition(":")
    index = int(number) if colon else (launch.rank if launch.local_rank is None else launch.local_rank) % devices
    try:
        torch.cuda.set_device(index)
    except RuntimeError as error:  # another process has it for itself, or the driver is broken
        return Choice(wanted, f"--device {wanted}: cuda:{index} can't be used ({str(error).splitlines()[0]})")
    return Choice(f"cuda:{index}", "", 1 if colon else devices, launch.local_size or 1)


def current(wanted: str) -> "torch.device":
    """Return the device that was chosen, by name or as torch's current one; EnvironmentProblem where there is none."""
    import torch

    if wanted == "cpu":
        return torch.device("cpu")
    if found := problem(wanted):
        raise EnvironmentProblem(found)
    return torch.device(wanted) if ":" in wanted else torch.device("cuda", torch.cuda.current_device())


def problem(wanted: str) -> str:
    """Say why there is no such device for this process; "" where there is one."""
    import torch

    where, otherwise = f"--device {wanted}", "or use --device cpu"
    if torch.version.cuda is None:
        return (
            f"{where}: this torch, {torch.__version__}, was built without CUDA; install one built for it, {otherwise}"
        )
    devices, visible = torch.cuda.device_count(), os.environ.get("CUDA_VISIBLE_DEVICES")
    limited = "" if visible is None else f" with CUDA_VISIBLE_DEVICES={visible}"
    if devices == 0:
        return f"{where}: torch sees no GPU{limited}; see `nvidia-smi` and `python -m mpisign.doctor`, {otherwise}"
    number = wanted.partition(":")[2]
    if number and int(number) >= devices:
        return f"{where}: torch sees {devices} GPUs{limited}, numbered from 0; name one of them, {otherwise}"
    if importlib.util.find_spec("numba_cuda") is None:
        return f"{where}: the kernels need numba-cuda; pip install 'mpisign[cuda]' and numba-cuda[cu12] or [cu13], {otherwise}"
    return ""
