"""The section [algorithm]."""

from dataclasses import dataclass
from typing import Literal

from ..errors import ConfigError
from .checks import NOT_NEGATIVE, POSITIVE, SHARE, registered, within
from .setting import names, setting
from .specs import with_arguments
from .values import settle


@dataclass(frozen=True)
class AlgorithmConfig:
    """How the workers learn together. Errors: ConfigError for a field that won't do."""

    algorithm: str = setting(
        "signum", "--algorithm", f"the method: {names('algorithm')}", registered("algorithm"), "NAME"
    )
    lr: float | None = setting(None, "--lr", "learning rate, above 0; by default the algorithm's own", POSITIVE)
    momentum: float | None = setting(
        None,
        "--momentum",
        "share of the old momentum that a step keeps, in [0, 1); by default the algorithm's own",
        SHARE,
    )
    nesterov: bool | None = setting(
        None, "--nesterov", "Nesterov's momentum, where there is one; by default the algorithm's own choice"
    )
    weight_decay: float = setting(
        0.0, "--weight-decay", "each step shrinks the weights by lr times this share, at least 0", NOT_NEGATIVE
    )
    trust: float | None = setting(
        None,
        "--trust",
        "bound each layer's step by this share of its weights' norm (LARC), above 0; by default not",
        POSITIVE,
    )
    norm: Literal["none", "carry"] = setting(
        "none", "--norm", "ssdm: the paper's steps, or each worker's norm carried along, for data that differ"
    )
    vote: str = setting("auto", "--vote", f"who counts the ballots: {names('vote')}", registered("vote"), "NAME")
    overlap: bool = setting(False, "--overlap", "send ballots while backward goes on, same bits; sign votes only")
    tie: Literal["coin", "plus", "abstain"] = setting(
        "coin", "--tie", "as many + as -: a coin shared by all ranks, always +, or no step"
    )
    zero: Literal["coin", "plus", "abstain"] = setting(
        "coin", "--zero", "vote where a worker's momentum is 0: a coin of its own, always +, or none"
    )
    quarantine: float | None = setting(
        None,
        "--quarantine",
        "no longer count workers that disagree as no honest one does; RATE is the chance that an honest one is ever "
        "excluded, 0.001 if left out",
        within("a number above 0 and below 1", lambda number: 0 < number < 1),
        "RATE",
        alone="0.001",
    )
    codec: str = setting(
        "float32",
        "--codec",
        "how gradients travel, for sgd and adam, or models, for relaysgd: float32, float16, bfloat16, qsgd:LEVELS, "
        "qsgd:LEVELS:max, topk:SHARE or sign (these with error feedback), or file.py:attribute",
        with_arguments("codec"),
        "NAME",
    )
    two_way: bool = setting(
        False, "--two-way", "let the aggregate go back through the codec too; half floats always do"
    )
    aggregator: str = setting(
        "mean",
        "--aggregator",
        "what becomes of the gradients, for sgd and adam: mean, median, trimmed_mean:SHARE, krum:LIARS, or "
        "file.py:attribute",
        with_arguments("aggregator"),
        "NAME",
    )

    def __post_init__(self) -> None:
        settle(self)
        if self.nesterov and self.momentum == 0:
            raise ConfigError("--nesterov: needs a --momentum above 0, as in --momentum 0.9")
