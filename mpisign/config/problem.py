"""The section [problem]."""

from dataclasses import dataclass
from pathlib import Path

from .checks import registered
from .setting import names, setting
from .specs import parse_partition
from .values import settle


@dataclass(frozen=True)
class ProblemConfig:
    """What is learnt, by which model, and who holds which data. Errors: ConfigError for a field that won't do."""

    task: str = setting("digits", "--task", f"what is learnt: {names('task')}", registered("task"), "NAME")
    model: str | None = setting(
        None, "--model", f"{names('model')}; by default the task's own", registered("model"), "NAME"
    )
    data: Path | None = setting(None, "--data", "folder of the data set's files; by default the task's own")
    partition: str = setting(
        "iid",
        "--partition",
        "who holds which samples: iid, shared (all hold all), by_class, dirichlet:ALPHA, or file.py:attribute",
        parse_partition,
        "KIND",
    )

    def __post_init__(self) -> None:
        settle(self)
