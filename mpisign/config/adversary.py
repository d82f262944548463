"""The section [adversary]."""

from dataclasses import dataclass

from ..errors import ConfigError
from .checks import registered
from .setting import names, setting
from .specs import parse_byzantine
from .values import settle


@dataclass(frozen=True)
class AdversaryConfig:
    """Who lies, and how. Errors: ConfigError for a field that won't do, or for one without the other."""

    attack: str | None = setting(
        None, "--attack", f"what Byzantine workers do: {names('attack')}", registered("attack"), "NAME"
    )
    byzantine: str = setting(
        "0",
        "--byzantine",
        "who they are: the last K ranks, a share of all ranks (rounded down), or these",
        parse_byzantine,
        "K|0.4|ranks:1,3",
    )
    hit_server: bool = setting(
        False, "--hit-server", "count them from rank 0 on, the server's worker first, as the paper's code does"
    )

    def __post_init__(self) -> None:
        settle(self)
        lies = parse_byzantine(self.byzantine) != 0
        if self.attack is not None and not lies:
            raise ConfigError(f"--attack {self.attack}: by nobody; say by whom, as in --byzantine 3, 0.4 or ranks:1,3")
        if self.attack is None and lies:
            raise ConfigError(f"--byzantine {self.byzantine}: they do nothing yet; say what, as in --attack invert")
        if self.hit_server and (not lies or self.byzantine.startswith("ranks:")):
            raise ConfigError(
                f"--hit-server: says which ranks a number or a share means, but --byzantine is {self.byzantine}; leave it "
                f"out, or give --byzantine 3"
            )
