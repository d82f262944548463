"""The section [failures]."""

from dataclasses import dataclass
from typing import Literal

from ..errors import ConfigError
from ..faults import parse_faults
from .checks import NOT_NEGATIVE, POSITIVE, within
from .setting import setting
from .values import settle


@dataclass(frozen=True)
class FailuresConfig:
    """What to do about ranks that die, stop or are late. Errors: ConfigError for a field that won't do."""

    timeout: float = setting(
        300.0,
        "--timeout",
        "seconds without a step after which a rank ends the job, with exit code 75; 0: never",
        NOT_NEGATIVE,
    )
    lost_data: Literal["leave", "redistribute"] = setting(
        "leave", "--lost-data", "the samples of a worker that died: left out, or dealt anew with all others"
    )
    inject: str | None = setting(
        None,
        "--inject",
        "faults on purpose: kill:rank=3,step=17, stop:rank=2,after=1.5,for=2, slow:rank=1,factor=5, nan:rank=1,step=4, "
        "drop:rank=1,share=0.1; with ; between several, and any for a rank or step by chance",
        parse_faults,
        "FAULTS",
    )
    quorum: float | None = setting(
        None,
        "--quorum",
        "go on without workers that are late, if this share of all ranks is there, in (0, 1]; sign votes by the server",
        within("a share above 0 and at most 1, as in 0.5", lambda share: 0 < share <= 1),
        "SHARE",
    )
    patience: float = setting(
        20.0,
        "--patience",
        "with --quorum: late is who takes longer than the median and this many times the spread, and half a second",
        POSITIVE,
    )
    late: Literal["drop", "count"] = setting(
        "drop", "--late", "with --quorum: a late ballot is dropped, or counted in the next vote"
    )
    respawn: bool = setting(
        False,
        "--respawn",
        "start a process in the place of a rank that died, with weights from another; mpirun --with-ft ulfm",
    )
    respawn_momentum: Literal["zero", "checkpoint"] = setting(
        "zero",
        "--respawn-momentum",
        "with --respawn: what a new process begins with of the momentum of the one that died: zero, or what the newest whole "
        "checkpoint in --output has",
    )

    def __post_init__(self) -> None:
        settle(self)
        if self.late == "count" and self.quorum is None:
            raise ConfigError("--late count: nobody is late without a quorum; give --quorum 0.5, too")
        if self.respawn_momentum == "checkpoint" and not self.respawn:
            raise ConfigError("--respawn-momentum checkpoint: nobody is replaced without --respawn; give both")
