"""Every setting of a run, once: defaults, remarks for --help, flags, checks and the TOML file come from these fields.

Only the standard library is imported, so that a mistake in a command line is answered in milliseconds.
"""

import math
import os
import re
from collections.abc import Callable
from dataclasses import Field, dataclass, field, fields
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, get_args

from . import registry
from .errors import ConfigError
from .faults import parse_faults
from .schedules import parse_schedule

Check = Callable[[Any, str], None]
"""Raises ConfigError unless the value will do; the second argument says where it came from."""


def parse_partition(spec: str) -> tuple[str, float | None]:
    """Return the name of a partition and its number, where it has one.

    Errors: ConfigError unless `spec` is iid, shared, by_class, dirichlet:ALPHA with a finite ALPHA > 0 (small: each worker
    sees few classes; large: nearly iid), or file.py:attribute, with :NUMBER or without.

    >>> parse_partition("iid"), parse_partition("dirichlet:0.5"), parse_partition("my_file.py:mine:3")
    (('iid', None), ('dirichlet', 0.5), ('my_file.py:mine', 3.0))
    """
    _check_partition(spec, f"--partition {spec}")
    name, _, number = spec.rpartition(":")
    return (name, float(number)) if name and _is_number(number) else (spec, None)


def _check_partition(spec: str, where: str) -> None:
    kind, colon, number = spec.partition(":")
    if kind == "dirichlet" and not (_is_number(number) and 0 < float(number) < math.inf):
        raise ConfigError(f"{where}: wanted dirichlet:ALPHA with a finite ALPHA above 0, as in dirichlet:0.5")
    if kind in ("iid", "shared", "by_class") and colon:
        raise ConfigError(f"{where}: {kind} takes no number; write {kind} alone")
    name, _, number = spec.rpartition(":")
    registry.check("partition", name if name and _is_number(number) else spec, where)


def parse_byzantine(spec: str) -> int | Fraction | tuple[int, ...]:
    """Return who lies: a number of workers, a share of them without rounding, or their ranks, lowest first.

    Errors: ConfigError unless `spec` is a whole number, a share in [0, 1), or ranks: and ranks with commas between.

    >>> parse_byzantine("3"), parse_byzantine("0.4"), parse_byzantine("ranks:3,1")
    (3, Fraction(2, 5), (1, 3))
    """
    _check_byzantine(spec, f"--byzantine {spec}")
    _, colon, ranks = spec.partition(":")
    if colon:
        return tuple(sorted(map(int, ranks.split(","))))
    return int(spec) if _is_whole(spec) else Fraction(repr(float(spec)))


def _check_byzantine(spec: str, where: str) -> None:
    kind, colon, listed = spec.partition(":")
    ranks = listed.split(",")
    if colon and not (kind == "ranks" and all(map(_is_whole, ranks)) and len(set(map(int, ranks))) == len(ranks)):
        raise ConfigError(f"{where}: wanted different ranks with commas between, as in ranks:1,3")
    if not (colon or _is_whole(spec) or (_is_number(spec) and 0 <= float(spec) < 1)):
        raise ConfigError(
            f"{where}: wanted a number of workers, a share in [0, 1), or ranks, as in 3, 0.4 or ranks:1,3"
        )


def _check_faults(spec: str, where: str) -> None:
    parse_faults(spec, where)


def _check_schedule(spec: str, where: str) -> None:
    parse_schedule(spec, where)


def _is_whole(text: str) -> bool:
    return re.fullmatch("[0-9]{1,9}", text) is not None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _registered(kind: str) -> Check:
    return lambda value, where: registry.check(kind, value, where)


_ARGUMENTS: dict[str, tuple[str, Callable[..., bool]]] = {
    "qsgd": (
        "qsgd:LEVELS or qsgd:LEVELS:max with a whole number of LEVELS from 1 to 32767, as in qsgd:4",
        lambda levels, norm="l2": isinstance(levels, int) and 1 <= levels <= 32767 and norm in ("l2", "max"),
    ),
    "topk": (
        "topk:SHARE with a SHARE above 0 and at most 1, as in topk:0.01",
        lambda share: not isinstance(share, str) and 0 < share <= 1,
    ),
    "trimmed_mean": (
        "trimmed_mean:SHARE with a SHARE of at least 0 and below 0.5, as in trimmed_mean:0.2",
        lambda share: not isinstance(share, str) and 0 <= share < 0.5,
    ),
    "krum": ("krum:LIARS with a whole number of LIARS, as in krum:2", lambda f: isinstance(f, int) and f >= 0),
}


def _with_arguments(kind: str) -> Check:
    """Return the check of NAME or NAME:ARGUMENT[:ARGUMENT]; arguments of things outside are left to them."""

    def check_spec(spec: Any, where: str) -> None:
        name, arguments = registry.split(kind, spec)
        registry.check(kind, name, where)
        if name not in registry.BUILT_IN[kind]:
            return
        wanted, accepts = _ARGUMENTS.get(name, (f"{name} alone, it takes no argument", lambda: True))
        try:
            fits = accepts(*arguments)
        except TypeError:  # too few or too many
            fits = False
        if not fits:
            raise ConfigError(f"{where}: wanted {wanted}")

    return check_spec


def _within(wanted: str, accepts: Callable[[Any], bool]) -> Check:
    def check_range(value: Any, where: str) -> None:
        if not accepts(value):
            raise ConfigError(f"{where}: wanted {wanted}")

    return check_range


def _check_device(value: str, where: str) -> None:
    if not re.fullmatch("cpu|cuda(:[0-9]{1,4})?", value):
        raise ConfigError(
            f"{where}: no such device; wanted cpu, cuda (a GPU for each rank of a host, in turn), or one for all as in cuda:0"
        )


def _accept(value: Any, where: str) -> None:
    """Accept every value of the right type."""


def _names(kind: str) -> str:
    return f"{', '.join(registry.BUILT_IN[kind])}, or file.py:attribute"


def _about(flag: str, remark: str, check: Check = _accept, metavar: str = "", alone: str = "") -> dict[str, Any]:
    """Return what a field carries: its flag, its remark for --help, its check, what --help calls its value.

    `alone` is the value of the flag without one; where it is empty, the flag needs one.
    """
    return {"flag": flag, "remark": remark, "check": check, "metavar": metavar, "alone": alone}


_COUNT = _within("a whole number of at least 1", lambda number: number >= 1)
_SEED = _within("a whole number from 0 to 2^63 - 1", lambda number: 0 <= number < 2**63)
_SHARE = _within("a number in [0, 1)", lambda number: 0 <= number < 1)
_POSITIVE = _within("a finite number above 0", lambda number: 0 < number < math.inf)
_NOT_NEGATIVE = _within("a finite number of at least 0", lambda number: 0 <= number < math.inf)


@dataclass(frozen=True)
class ProblemConfig:
    """What is learnt, by which model, and who holds which data. Errors: ConfigError for a field that won't do."""

    task: str = field(
        default="digits", metadata=_about("--task", f"what is learnt: {_names('task')}", _registered("task"), "NAME")
    )
    model: str | None = field(
        default=None,
        metadata=_about("--model", f"{_names('model')}; by default the task's own", _registered("model"), "NAME"),
    )
    data: Path | None = field(
        default=None, metadata=_about("--data", "folder of the data set's files; by default the task's own")
    )
    partition: str = field(
        default="iid",
        metadata=_about(
            "--partition",
            "who holds which samples: iid, shared (all hold all), by_class, dirichlet:ALPHA, or file.py:attribute",
            _check_partition,
            "KIND",
        ),
    )

    def __post_init__(self) -> None:
        _settle(self)


@dataclass(frozen=True)
class AlgorithmConfig:
    """How the workers learn together. Errors: ConfigError for a field that won't do."""

    algorithm: str = field(
        default="signum",
        metadata=_about("--algorithm", f"the method: {_names('algorithm')}", _registered("algorithm"), "NAME"),
    )
    lr: float | None = field(
        default=None, metadata=_about("--lr", "learning rate, above 0; by default the algorithm's own", _POSITIVE)
    )
    momentum: float | None = field(
        default=None,
        metadata=_about(
            "--momentum",
            "share of the old momentum that a step keeps, in [0, 1); by default the algorithm's own",
            _SHARE,
        ),
    )
    nesterov: bool | None = field(
        default=None,
        metadata=_about("--nesterov", "Nesterov's momentum, where there is one; by default the algorithm's own choice"),
    )
    weight_decay: float = field(
        default=0.0,
        metadata=_about(
            "--weight-decay", "each step shrinks the weights by lr times this share, at least 0", _NOT_NEGATIVE
        ),
    )
    trust: float | None = field(
        default=None,
        metadata=_about(
            "--trust",
            "bound each layer's step by this share of its weights' norm (LARC), above 0; by default not",
            _POSITIVE,
        ),
    )
    norm: Literal["none", "carry"] = field(
        default="none",
        metadata=_about("--norm", "ssdm: the paper's steps, or each worker's norm carried along, for data that differ"),
    )
    vote: str = field(
        default="auto",
        metadata=_about("--vote", f"who counts the ballots: {_names('vote')}", _registered("vote"), "NAME"),
    )
    overlap: bool = field(
        default=False, metadata=_about("--overlap", "send ballots while backward goes on, same bits; sign votes only")
    )
    tie: Literal["coin", "plus", "abstain"] = field(
        default="coin", metadata=_about("--tie", "as many + as -: a coin shared by all ranks, always +, or no step")
    )
    zero: Literal["coin", "plus", "abstain"] = field(
        default="coin",
        metadata=_about("--zero", "vote where a worker's momentum is 0: a coin of its own, always +, or none"),
    )
    quarantine: float | None = field(
        default=None,
        metadata=_about(
            "--quarantine",
            "no longer count workers that disagree as no honest one does; RATE is the chance that an honest one is ever "
            "excluded, 0.001 if left out",
            _within("a number above 0 and below 1", lambda number: 0 < number < 1),
            "RATE",
            alone="0.001",
        ),
    )
    codec: str = field(
        default="float32",
        metadata=_about(
            "--codec",
            "how gradients travel, for sgd and adam, or models, for relaysgd: float32, float16, bfloat16, qsgd:LEVELS, "
            "qsgd:LEVELS:max, topk:SHARE or sign (these with error feedback), or file.py:attribute",
            _with_arguments("codec"),
            "NAME",
        ),
    )
    two_way: bool = field(
        default=False,
        metadata=_about("--two-way", "let the aggregate go back through the codec too; half floats always do"),
    )
    aggregator: str = field(
        default="mean",
        metadata=_about(
            "--aggregator",
            "what becomes of the gradients, for sgd and adam: mean, median, trimmed_mean:SHARE, krum:LIARS, or "
            "file.py:attribute",
            _with_arguments("aggregator"),
            "NAME",
        ),
    )

    def __post_init__(self) -> None:
        _settle(self)
        if self.nesterov and self.momentum == 0:
            raise ConfigError("--nesterov: needs a --momentum above 0, as in --momentum 0.9")


@dataclass(frozen=True)
class NetworkConfig:
    """Who talks to whom, where models are relayed or gossiped. Errors: ConfigError for a field that won't do."""

    topology: str | None = field(
        default=None,
        metadata=_about(
            "--topology",
            "double_binary_trees, chain, ring, torus:4x4 … (`python -m mpisign.topology list`); by default the algorithm's",
            metavar="NAME",
        ),
    )
    delay: Literal["synchronous", "overlapped"] = field(
        default="synchronous",
        metadata=_about("--delay", "of a message: hops - 1 steps, or hops, travelling while gradients are computed"),
    )
    fill: Literal["initial", "counts", "own", "refresh"] = field(
        default="initial",
        metadata=_about("--fill", "what stands in a relay's mean for models that have not come, or were lost"),
    )
    local: Literal["sgd", "damped", "adam"] = field(
        default="sgd", metadata=_about("--local", "each worker's own step: sgd, sgd with damped momentum, or adam")
    )
    correction: bool = field(
        default=False, metadata=_about("--correction", "multiply the learning rate by 1 + the relay's mean delay")
    )
    strength: float | None = field(
        default=None,
        metadata=_about("--strength", "relay_mix: how much of the models is relayed, 0 to 1", _NOT_NEGATIVE),
    )
    rounds: int | None = field(default=None, metadata=_about("--rounds", "sgp: rounds of averaging a step", _COUNT))
    message_loss: float = field(
        default=0.0,
        metadata=_about(
            "--message-loss", "lose each message between neighbours with this probability, in [0, 1)", _SHARE
        ),
    )

    def __post_init__(self) -> None:
        _settle(self)


@dataclass(frozen=True)
class RunConfig:
    """How long, on what and to where. Errors: ConfigError for a field that won't do."""

    epochs: int = field(default=30, metadata=_about("--epochs", "passes over the data", _COUNT))
    steps: int | None = field(
        default=None, metadata=_about("--steps", "stop after so many steps, whatever --epochs says", _COUNT)
    )
    batch_size: int = field(default=16, metadata=_about("--batch-size", "samples a worker and step", _COUNT))
    seed: int = field(default=0, metadata=_about("--seed", "same seed and number of ranks: same bits", _SEED))
    device: str = field(
        default="cpu",
        metadata=_about(
            "--device",
            "where model and optimizer live: cpu, cuda (a GPU for each rank of a host, in turn), or one for all as in cuda:0",
            _check_device,
            "NAME",
        ),
    )
    cuda_aware: Literal["no", "yes", "probe"] = field(
        default="no",
        metadata=_about(
            "--cuda-aware",
            "give MPI addresses of GPU memory: no (copies through pinned memory), yes, or what a probe in processes of its own "
            "finds; sign votes by the server",
        ),
    )
    simulate: int | None = field(
        default=None, metadata=_about("--simulate", "so many ranks inside one process, without MPI", _COUNT)
    )
    output: Path | None = field(
        default=None, metadata=_about("--output", "folder for the results; by default nothing is written")
    )
    overwrite: bool = field(
        default=False, metadata=_about("--overwrite", "replace the results of an earlier run in --output")
    )
    schedule: str = field(
        default="constant",
        metadata=_about(
            "--schedule",
            "of the learning rate: constant, cosine, step:30 (a tenth each 30 epochs), or step:150,180 (a tenth at these)",
            _check_schedule,
            "KIND",
        ),
    )
    warm_up: float = field(
        default=0.0, metadata=_about("--warm-up", "epochs in which the learning rate rises from 0", _NOT_NEGATIVE)
    )
    dedicated_server: bool = field(
        default=False, metadata=_about("--dedicated-server", "rank 0 holds no data: it counts, and doesn't train")
    )
    batches: Literal["shuffled", "split"] = field(
        default="shuffled", metadata=_about("--batches", "drawn anew in each epoch, or split once and visited in order")
    )
    checkpoint_every: int | None = field(
        default=None,
        metadata=_about(
            "--checkpoint-every",
            "steps from one checkpoint in --output to the next; by default only when asked to stop",
            _COUNT,
        ),
    )
    checkpoints_kept: int = field(
        default=2, metadata=_about("--checkpoints-kept", "how many whole checkpoints stay", _COUNT)
    )
    resume: Literal["auto"] | None = field(
        default=None,
        metadata=_about(
            "--resume", "auto: go on from the newest whole checkpoint in --output, or begin where there is none"
        ),
    )
    log: Literal["tensorboard"] | None = field(
        default=None,
        metadata=_about("--log", "tensorboard: write what TensorBoard shows into --output, too; needs tensorboardX"),
    )

    def __post_init__(self) -> None:
        _settle(self)
        if self.cuda_aware != "no" and self.device == "cpu":
            raise ConfigError(f"--cuda-aware {self.cuda_aware}: nothing is in a GPU's memory; give --device cuda, too")
        for flag, wanted in (("--checkpoint-every", self.checkpoint_every), ("--resume", self.resume)):
            if wanted is not None and self.output is None:
                raise ConfigError(f"{flag} {wanted}: checkpoints are in the folder of --output; give one")
        if self.log is not None and self.output is None:
            raise ConfigError(f"--log {self.log}: is written into the folder of --output; give one")


@dataclass(frozen=True)
class AdversaryConfig:
    """Who lies, and how. Errors: ConfigError for a field that won't do, or for one without the other."""

    attack: str | None = field(
        default=None,
        metadata=_about("--attack", f"what Byzantine workers do: {_names('attack')}", _registered("attack"), "NAME"),
    )
    byzantine: str = field(
        default="0",
        metadata=_about(
            "--byzantine",
            "who they are: the last K ranks, a share of all ranks (rounded down), or these",
            _check_byzantine,
            "K|0.4|ranks:1,3",
        ),
    )
    hit_server: bool = field(
        default=False,
        metadata=_about(
            "--hit-server", "count them from rank 0 on, the server's worker first, as the paper's code does"
        ),
    )

    def __post_init__(self) -> None:
        _settle(self)
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


@dataclass(frozen=True)
class FailuresConfig:
    """What to do about ranks that die, stop or are late. Errors: ConfigError for a field that won't do."""

    timeout: float = field(
        default=300.0,
        metadata=_about(
            "--timeout",
            "seconds without a step after which a rank ends the job, with exit code 75; 0: never",
            _NOT_NEGATIVE,
        ),
    )
    lost_data: Literal["leave", "redistribute"] = field(
        default="leave",
        metadata=_about("--lost-data", "the samples of a worker that died: left out, or dealt anew with all others"),
    )
    inject: str | None = field(
        default=None,
        metadata=_about(
            "--inject",
            "faults on purpose: kill:rank=3,step=17, stop:rank=2,after=1.5,for=2, slow:rank=1,factor=5, nan:rank=1,step=4, "
            "drop:rank=1,share=0.1; with ; between several, and any for a rank or step by chance",
            _check_faults,
            "FAULTS",
        ),
    )
    quorum: float | None = field(
        default=None,
        metadata=_about(
            "--quorum",
            "go on without workers that are late, if this share of all ranks is there, in (0, 1]; sign votes by the server",
            _within("a share above 0 and at most 1, as in 0.5", lambda share: 0 < share <= 1),
            "SHARE",
        ),
    )
    patience: float = field(
        default=20.0,
        metadata=_about(
            "--patience",
            "with --quorum: late is who takes longer than the median and this many times the spread, and half a second",
            _POSITIVE,
        ),
    )
    late: Literal["drop", "count"] = field(
        default="drop",
        metadata=_about("--late", "with --quorum: a late ballot is dropped, or counted in the next vote"),
    )
    respawn: bool = field(
        default=False,
        metadata=_about(
            "--respawn",
            "start a process in the place of a rank that died, with weights from another and no momentum; mpirun --with-ft ulfm",
        ),
    )

    def __post_init__(self) -> None:
        _settle(self)
        if self.late == "count" and self.quorum is None:
            raise ConfigError("--late count: nobody is late without a quorum; give --quorum 0.5, too")


@dataclass(frozen=True)
class Config:
    """All settings of one run; `Config()` holds the defaults."""

    problem: ProblemConfig = field(default_factory=ProblemConfig)
    algorithm: AlgorithmConfig = field(default_factory=AlgorithmConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    run: RunConfig = field(default_factory=RunConfig)
    adversary: AdversaryConfig = field(default_factory=AdversaryConfig)
    failures: FailuresConfig = field(default_factory=FailuresConfig)


SECTIONS: dict[
    str,
    type[ProblemConfig]
    | type[AlgorithmConfig]
    | type[NetworkConfig]
    | type[RunConfig]
    | type[AdversaryConfig]
    | type[FailuresConfig],
] = {
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


# Values: one check for flags, TOML and constructors


def _settle(section: Any) -> None:
    """Check each field of a section under construction, and convert int to float and str to Path where wanted."""
    for entry in fields(section):
        value = getattr(section, entry.name)
        object.__setattr__(section, entry.name, checked(entry, value, f"{entry.name}={value!r}"))


def checked(entry: Field[Any], value: Any, where: str) -> Any:
    """Return the value as the field's type, after its check; the ConfigError begins with `where` it came from."""
    kind, optional = kind_of(entry)
    if value is None and optional:
        return None
    converted = _CONVERT[kind](value, where) if kind in _CONVERT else _one_of(get_args(kind), value, where)
    entry.metadata["check"](converted, where)
    return converted


def kind_of(entry: Field[Any]) -> tuple[Any, bool]:
    """Return the type of a field without its None, and whether it had one."""
    alternatives = get_args(entry.type)
    if type(None) not in alternatives:
        return entry.type, False
    return alternatives[0], True


def _one_of(choices: tuple[str, ...], value: Any, where: str) -> str:
    if value not in choices:
        raise ConfigError(
            f"{where}: no such choice{registry.nearest(str(value), choices)}; wanted {' or '.join(choices)}"
        )
    return str(value)


def _whole(value: Any, where: str) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ConfigError(f"{where}: wanted a whole number")
    return int(value)


def _real(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{where}: wanted a number")
    try:
        return float(value)
    except OverflowError:
        raise ConfigError(f"{where}: wanted a number that fits into 64 bits") from None


def _truth(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{where}: wanted true or false")
    return value


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{where}: wanted text")
    if not value or "\0" in value or value != value.encode(errors="ignore").decode():
        raise ConfigError(f"{where}: wanted text that is not empty, in UTF-8")
    return value


def as_path(value: Any, where: str) -> Path:
    """Return text as a path, with ~ expanded; ConfigError for what can't be one."""
    return Path(os.path.expanduser(_text(str(value) if isinstance(value, Path) else value, where)))


_CONVERT: dict[Any, Callable[[Any, str], Any]] = {
    int: _whole,
    float: _real,
    bool: _truth,
    str: _text,
    Path: as_path,
}
