"""The section [network]."""

from dataclasses import dataclass
from typing import Literal

from .checks import COUNT, NOT_NEGATIVE, SHARE
from .setting import setting
from .values import settle


@dataclass(frozen=True)
class NetworkConfig:
    """Who talks to whom, where models are relayed or gossiped. Errors: ConfigError for a field that won't do."""

    topology: str | None = setting(
        None,
        "--topology",
        "double_binary_trees, chain, ring, torus:4x4 … (`python -m mpisign.topology list`); by default the algorithm's",
        metavar="NAME",
    )
    delay: Literal["synchronous", "overlapped"] = setting(
        "synchronous", "--delay", "of a message: hops - 1 steps, or hops, travelling while gradients are computed"
    )
    fill: Literal["initial", "counts", "own", "refresh"] = setting(
        "initial", "--fill", "what stands in a relay's mean for models that have not come, or were lost"
    )
    local: Literal["sgd", "damped", "adam"] = setting(
        "sgd", "--local", "each worker's own step: sgd, sgd with damped momentum, or adam"
    )
    correction: bool = setting(False, "--correction", "multiply the learning rate by 1 + the relay's mean delay")
    strength: float | None = setting(
        None, "--strength", "relay_mix: how much of the models is relayed, 0 to 1", NOT_NEGATIVE
    )
    rounds: int | None = setting(None, "--rounds", "sgp: rounds of averaging a step", COUNT)
    message_loss: float = setting(
        0.0, "--message-loss", "lose each message between neighbours with this probability, in [0, 1)", SHARE
    )

    def __post_init__(self) -> None:
        settle(self)
