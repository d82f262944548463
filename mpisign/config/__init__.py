"""Every setting of a run, once: defaults, remarks for --help, flags, checks and the TOML file come from these fields.

Only the standard library is imported, so that a mistake in a command line is answered in milliseconds.
"""

from dataclasses import Field, dataclass, field, fields
from typing import Any

from ..errors import ConfigError
from .adversary import AdversaryConfig
from .algorithm import AlgorithmConfig
from .failures import FailuresConfig
from .network import NetworkConfig
from .problem import ProblemConfig
from .run import RunConfig
from .specs import parse_byzantine, parse_partition
from .values import as_path, checked, kind_of

__all__ = [
    "FIELDS",
    "FREE_ON_RESUME",
    "SECTIONS",
    "SECTION_OF",
    "AdversaryConfig",
    "AlgorithmConfig",
    "Config",
    "FailuresConfig",
    "NetworkConfig",
    "ProblemConfig",
    "RunConfig",
    "as_path",
    "checked",
    "kind_of",
    "parse_byzantine",
    "parse_partition",
]


@dataclass(frozen=True)
class Config:
    """All settings of one run; `Config()` holds the defaults. Errors: ConfigError for what contradicts each other."""

    problem: ProblemConfig = field(default_factory=ProblemConfig)
    algorithm: AlgorithmConfig = field(default_factory=AlgorithmConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    run: RunConfig = field(default_factory=RunConfig)
    adversary: AdversaryConfig = field(default_factory=AdversaryConfig)
    failures: FailuresConfig = field(default_factory=FailuresConfig)

    def __post_init__(self) -> None:
        if self.failures.respawn_momentum == "checkpoint" and self.run.checkpoint_every is None:
            raise ConfigError(
                "--respawn-momentum checkpoint: there will be none; give --checkpoint-every and --output, too"
            )


Section = ProblemConfig | AlgorithmConfig | NetworkConfig | RunConfig | AdversaryConfig | FailuresConfig
SECTIONS: dict[str, type[Section]] = {
    "problem": ProblemConfig,
    "algorithm": AlgorithmConfig,
    "network": NetworkConfig,
    "run": RunConfig,
    "adversary": AdversaryConfig,
    "failures": FailuresConfig,
}
SECTION_OF = {entry.name: section for section, kind in SECTIONS.items() for entry in fields(kind)}
FREE_ON_RESUME = {
    *("vote", "overlap", "device", "cuda_aware", "simulate", "output", "overwrite", "epochs", "steps", "data"),
    *("checkpoint_every", "checkpoints_kept", "resume", "log"),
    *(entry.name for entry in fields(FailuresConfig)),
}
"""What may differ between a run and its continuation."""
FIELDS: dict[str, Field[Any]] = {entry.name: entry for kind in SECTIONS.values() for entry in fields(kind)}
