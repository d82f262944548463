"""The section [run]."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..errors import ConfigError
from ..schedules import parse_schedule
from .checks import COUNT, NOT_NEGATIVE, SEED, check_device
from .setting import setting
from .values import settle


@dataclass(frozen=True)
class RunConfig:
    """How long, on what and to where. Errors: ConfigError for a field that won't do."""

    epochs: int = setting(30, "--epochs", "passes over the data", COUNT)
    steps: int | None = setting(None, "--steps", "stop after so many steps, whatever --epochs says", COUNT)
    batch_size: int = setting(16, "--batch-size", "samples a worker and step", COUNT)
    seed: int = setting(0, "--seed", "same seed and number of ranks: same bits", SEED)
    device: str = setting(
        "cpu",
        "--device",
        "where model and optimizer live: cpu, cuda (a GPU for each rank of a host, in turn), or one for all as in cuda:0",
        check_device,
        "NAME",
    )
    cuda_aware: Literal["no", "yes", "probe"] = setting(
        "no",
        "--cuda-aware",
        "give MPI addresses of GPU memory: no (copies through pinned memory), yes, or what a probe in processes of its own "
        "finds; sign votes by the server",
    )
    simulate: int | None = setting(None, "--simulate", "so many ranks inside one process, without MPI", COUNT)
    output: Path | None = setting(None, "--output", "folder for the results; by default nothing is written")
    overwrite: bool = setting(False, "--overwrite", "replace the results of an earlier run in --output")
    schedule: str = setting(
        "constant",
        "--schedule",
        "of the learning rate: constant, cosine, step:30 (a tenth each 30 epochs), or step:150,180 (a tenth at these)",
        parse_schedule,
        "KIND",
    )
    warm_up: float = setting(0.0, "--warm-up", "epochs in which the learning rate rises from 0", NOT_NEGATIVE)
    dedicated_server: bool = setting(False, "--dedicated-server", "rank 0 holds no data: it counts, and doesn't train")
    batches: Literal["shuffled", "split"] = setting(
        "shuffled", "--batches", "drawn anew in each epoch, or split once and visited in order"
    )
    checkpoint_every: int | None = setting(
        None,
        "--checkpoint-every",
        "steps from one checkpoint in --output to the next; by default only when asked to stop",
        COUNT,
    )
    checkpoints_kept: int = setting(2, "--checkpoints-kept", "how many whole checkpoints stay", COUNT)
    resume: Literal["auto"] | None = setting(
        None, "--resume", "auto: go on from the newest whole checkpoint in --output, or begin where there is none"
    )
    log: Literal["tensorboard"] | None = setting(
        None, "--log", "tensorboard: write what TensorBoard shows into --output, too; needs tensorboardX"
    )

    def __post_init__(self) -> None:
        settle(self)
        if self.cuda_aware != "no" and self.device == "cpu":
            raise ConfigError(f"--cuda-aware {self.cuda_aware}: nothing is in a GPU's memory; give --device cuda, too")
        for flag, wanted in (("--checkpoint-every", self.checkpoint_every), ("--resume", self.resume)):
            if wanted is not None and self.output is None:
                raise ConfigError(f"{flag} {wanted}: checkpoints are in the folder of --output; give one")
        if self.log is not None and self.output is None:
            raise ConfigError(f"--log {self.log}: is written into the folder of --output; give one")
