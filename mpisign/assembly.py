"""From the settings of a run to its parts, on all ranks together: data, model, optimizer, attack."""

import inspect
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from . import registry, seeding
from .algorithms.base import DistributedOptimizer
from .algorithms.networks import network_without
from .algorithms.signum import Signum
from .attacks import Attack, Honest, byzantine_ranks
from .collectives.tampered import Tampering
from .comm import Comm
from .comm.lossy import LossyComm
from .config import AlgorithmConfig, Config, NetworkConfig
from .errors import ConfigError, DataError
from .tasks.base import Dataset, Task
from .tasks.partition import partition


@dataclass(frozen=True)
class Shard:
    """What one rank holds of a data set: its part of the training data, and all test data, in case others die."""

    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor
    shape: tuple[int, ...]
    classes: int
    copies: int = 1  # how many ranks hold each training sample; an epoch visits as many as if it were one
    holders: tuple[int, ...] = ()  # among which ranks the data were dealt, by their numbers at the start


def build_task(comm: Comm, config: Config) -> Task:
    """Return the task, before its data are read."""
    task: Task = comm.together(lambda: registry.load("task", config.problem.task)(), ConfigError)
    return task


def share(comm: Comm, task: Task, config: Config) -> Shard:
    """Let rank 0 read the task's data and hand it out; what goes wrong there is raised on all ranks."""
    data = comm.together(lambda: task.read(config.problem.data) if comm.rank == 0 else None, DataError)
    form = torch.zeros(10, dtype=torch.int64)
    if data is not None:
        sizes = [len(data.y_train), len(data.y_test), data.classes, data.x_train.dtype == np.uint8, len(data.shape)]
        form[: 5 + len(data.shape)] = torch.tensor([*sizes, *data.shape])
    trains, tests, classes, is_uint8, dims, *dimensions = comm.bcast(form).tolist()
    shape, dtype = tuple(dimensions[:dims]), torch.uint8 if is_uint8 else torch.float32

    def handed_out(array: Any, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        tensor = torch.empty(shape, dtype=dtype) if array is None else torch.from_numpy(np.ascontiguousarray(array))
        return comm.bcast(tensor.view(-1)).view(shape)

    each: Any = data or Dataset.__new__(Dataset)
    x_train, y_train, x_test, y_test = (
        getattr(each, name, None) for name in ("x_train", "y_train", "x_test", "y_test")
    )
    labels = handed_out(y_train, (trains,), torch.int64)
    dealt = comm.together(lambda: _deal(labels.numpy(), comm.size, config))
    mine = torch.from_numpy(dealt[comm.rank])
    return Shard(
        handed_out(x_train, (trains, *shape), dtype)[mine],
        labels[mine],
        handed_out(x_test, (tests, *shape), dtype),
        handed_out(y_test, (tests,), torch.int64),
        shape,
        classes,
        sum(map(len, dealt)) // max(trains, 1),
        comm.members,
    )


def _deal(labels: npt.NDArray[np.int64], ranks: int, config: Config) -> list[npt.NDArray[np.int64]]:
    """Return the samples of each rank; a dedicated server gets none."""
    workers = ranks - config.run.dedicated_server
    if not workers:
        raise ConfigError("--dedicated-server: rank 0 alone would train nobody; start at least 2 ranks")
    dealt = partition(config.problem.partition, labels, workers, config.run.seed)
    return [np.empty(0, np.int64)] * (ranks - workers) + list(dealt)


def build_model(comm: Comm, task: Task, shard: Shard, config: Config) -> torch.nn.Module:
    """Return the model, equal on all ranks, for the shape that the task's inputs have."""

    def build() -> torch.nn.Module:
        model = registry.load("model", config.problem.model or task.default_model)
        shape = tuple(task.inputs(torch.zeros((1, *shard.shape), dtype=shard.x_train.dtype)).shape[1:])
        with seeding.torch_seeded(config.run.seed, seeding.SHARED, "model"):
            built: torch.nn.Module = model(shape, shard.classes)
        return built

    return comm.together(build, ConfigError)


def choose_algorithm(
    comm: Comm, config: Config, lie: type[Attack], attack: Attack
) -> tuple[type[DistributedOptimizer], dict[str, Any]]:
    """Return the algorithm, and those settings that it takes; one that it doesn't take must be left at its default.

    Where `lie`, the run's attack, is on ballots, every vote shows them to `attack`, what this rank does.
    """
    kind, settings = comm.together(lambda: _choose_algorithm(config))
    if comm.size < comm.founders and "topology" in _parameters(kind):
        network = settings.get("topology", inspect.signature(kind).parameters["topology"].default)
        lost = set(range(comm.founders)) - set(comm.members)
        settings["topology"] = comm.together(lambda: network_without(network, comm.founders, lost), ConfigError)
    comm.together(lambda: _check_attack_fits(config, settings, lie))
    if config.run.cuda_aware == "yes" and config.run.device != "cpu":
        comm.together(lambda: _check_awareness_fits(config, settings, comm.resilient))
        settings["cuda_aware"] = True
    if lie.overhears == "ballots":
        settings["vote"] = Tampering(registry.load("vote", settings["vote"]), attack)
    loss = config.network.message_loss
    settings["comm"] = LossyComm(comm, loss, config.run.seed) if loss else comm
    return kind, settings


def _choose_algorithm(config: Config) -> tuple[type[DistributedOptimizer], dict[str, Any]]:
    name = config.algorithm.algorithm
    kind = registry.load("algorithm", name)
    if not (isinstance(kind, type) and issubclass(kind, DistributedOptimizer)):
        raise ConfigError(f"--algorithm {name}: {kind!r} is no DistributedOptimizer")
    if config.network.message_loss and kind.replicated:
        raise ConfigError(
            f"--message-loss {config.network.message_loss}: {name} needs every message, so that all ranks keep one model; "
            f"use a method of neighbours, such as relaysgd or dpsgd"
        )
    vote = config.algorithm.vote
    if config.failures.quorum is not None:
        vote = _vote_of_a_quorum(config, kind)
    takes = _parameters(kind)
    settings = asdict(config.algorithm) | asdict(config.network)
    defaults = asdict(AlgorithmConfig()) | asdict(NetworkConfig())
    del settings["algorithm"], settings["message_loss"]
    for key, value in settings.items():
        if key not in takes and value != defaults[key]:
            raise ConfigError(f"--{key.replace('_', '-')} {value}: {name} has no such setting; leave it out")
    settings |= {"seed": config.run.seed, "vote": vote}
    return kind, {key: value for key, value in settings.items() if key in takes and value is not None}


def _vote_of_a_quorum(config: Config, kind: type[DistributedOptimizer]) -> str:
    """Return the vote that can do without those who are late."""
    name, vote = config.algorithm.algorithm, config.algorithm.vote
    where = f"--quorum {config.failures.quorum}"
    if not issubclass(kind, Signum):
        raise ConfigError(
            f"{where}: {name} needs every rank in each step; use a sign vote, signum, signsgd or lion, or leave out --quorum"
        )
    if vote not in ("auto", "server"):
        raise ConfigError(
            f"{where}: --vote {vote} is counted by several ranks; use --vote server, or leave out --quorum"
        )
    if config.algorithm.overlap:
        raise ConfigError(f"{where}: a step that has begun can't be left while ballots overlap; leave out --overlap")
    if config.failures.late == "count" and config.algorithm.quarantine is not None:
        raise ConfigError(
            "--late count: --quarantine compares ballots of one step; use --late drop, or no --quarantine"
        )
    return "server"


def _check_awareness_fits(config: Config, settings: dict[str, Any], resilient: bool) -> None:
    """Addresses of GPU memory go to MPI itself, in the plain vote by the server."""
    unfit = {
        f"--algorithm {config.algorithm.algorithm}": "vote" not in settings,
        f"--vote {settings.get('vote')}": settings.get("vote") not in ("auto", "server"),
        "--overlap": config.algorithm.overlap,
        "--quarantine": config.algorithm.quarantine is not None,
        "--quorum": config.failures.quorum is not None,
        "--simulate": config.run.simulate is not None,
        "--with-ft ulfm": resilient,
    }
    for flag, is_given in unfit.items():
        if is_given:
            raise ConfigError(
                f"--cuda-aware yes: only for sign votes by the server under MPI, not with {flag}; leave out one"
            )


def _check_attack_fits(config: Config, settings: dict[str, Any], lie: type[Attack]) -> None:
    if lie.overhears == "ballots" and config.run.device != "cpu":
        raise ConfigError(
            f"--attack {config.adversary.attack}: an attack on ballots, which are looked at on the CPU only; use --device cpu"
        )
    if lie.overhears == "ballots" and "vote" not in settings:
        raise ConfigError(
            f"--attack {config.adversary.attack}: changes ballots before the vote, and {config.algorithm.algorithm} has "
            f"none; use --algorithm signum, or an attack on gradients such as inner_product"
        )


def _parameters(kind: type) -> set[str]:
    """The names of all arguments that a class takes, its bases' among them where it hands on the rest."""
    names: set[str] = set()
    for one in kind.__mro__:
        own = inspect.signature(one).parameters.values()
        names |= {parameter.name for parameter in own}
        if "__init__" in vars(one) and not any(parameter.kind is parameter.VAR_KEYWORD for parameter in own):
            break
    return names - set(getattr(kind, "takes_no", ()))


def build_attack(comm: Comm, config: Config) -> tuple[type[Attack], Attack]:
    """Return the run's attack and what this rank does, which is `Honest` for most; what is wrong is raised on all ranks."""
    name, size, seed = config.adversary.attack, comm.founders, config.run.seed

    def choose() -> tuple[type[Attack], tuple[int, ...]]:
        kind = Honest if name is None else registry.load("attack", name)
        if not (isinstance(kind, type) and issubclass(kind, Attack)):
            raise ConfigError(f"--attack {name}: {kind!r} is no mpisign.attacks.Attack")
        ranks = byzantine_ranks(config.adversary.byzantine, size, config.adversary.hit_server)
        if name is not None and config.run.dedicated_server and (0 in ranks or len(ranks) == size - 1):
            raise ConfigError(
                f"--byzantine {config.adversary.byzantine} with --dedicated-server: rank 0 is no worker, so it neither lies "
                f"nor is honest, and of ranks 1 to {size - 1} one must be; name fewer, and leave out --hit-server"
            )
        return kind, ranks

    kind, liars = comm.together(choose)
    ranks = tuple(rank for rank, member in enumerate(comm.members) if member in liars)
    return kind, (kind if comm.rank in ranks else Honest)(comm.rank, ranks, comm.size, seed)
