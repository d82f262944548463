import functools
from typing import Any

import pytest
import torch

from mpisign import RelaySignum, Signum, StaleRelaySignum, checksum, registry, simulate, testing
from mpisign.assembly import build_model, build_task, share
from mpisign.comm import Comm, LossyComm, Message
from mpisign.config import Config, ProblemConfig, RunConfig
from mpisign.errors import DisagreementError, ParameterError, TopologyError
from mpisign.topology import chain, star

pytestmark = pytest.mark.usefixtures("global_chance_is_untouched")


def walk(comm: Comm, kind: Any, steps: int, **settings: Any) -> list[list[float]]:
    """Return the models of steps whose gradients depend on rank and step alone, not on the model."""
    x = torch.nn.Parameter(torch.zeros(200))
    optimizer = kind([x], lr=0.25, comm=comm, **settings)
    models = []
    for step in range(steps):
        x.grad = torch.randn(200, generator=torch.Generator().manual_seed(100 * step + comm.rank))
        optimizer.step()
        models.append(x.tolist())
    return models


@pytest.mark.parametrize(
    "settings, late",
    [
        ({"topology": "chain"}, 4),
        ({"topology": "chain", "delay": "overlapped"}, 5),
        ({"topology": "star"}, 1),
        ({"tie": "plus", "zero": "abstain"}, 2),
        ({"tie": "abstain", "seed": 4, "topology": "binary_tree"}, 2),
    ],
    ids=str,
)
def test_it_takes_the_steps_of_signum_some_steps_later(settings: dict[str, Any], late: int) -> None:
    rules = {name: value for name, value in settings.items() if name not in ("topology", "delay")}
    signum = simulate(6, walk, functools.partial(Signum, **rules), 8)[0]
    for models in simulate(6, walk, functools.partial(RelaySignum, **settings), 8 + late):
        assert models[late:] == signum
        assert not any(map(any, models[:late]))


def test_two_ranks_and_the_synchronous_star_of_three_decide_as_signum_and_one_step_later() -> None:
    assert simulate(2, walk, RelaySignum, 5) == simulate(2, walk, Signum, 5)
    relayed = simulate(3, walk, functools.partial(RelaySignum, topology=star(3)), 6)
    assert [models[1:] for models in relayed] == simulate(3, walk, Signum, 5)


def test_agreement_is_with_the_verdict_on_the_same_ballots() -> None:
    def body(comm: Comm, kind: Any, **settings: Any) -> list[float]:
        x = torch.nn.Parameter(torch.zeros(100))
        optimizer, found = kind([x], comm=comm, **settings), []
        for step in range(8):
            x.grad = torch.randn(100, generator=torch.Generator().manual_seed(10 * step + comm.rank))
            optimizer.step()
            found.append((optimizer.report.agreement, optimizer.report.voters))
        return found

    relayed = simulate(4, lambda comm: body(comm, RelaySignum, topology="chain"))
    assert [found[2:] for found in relayed] == [found[:-2] for found in simulate(4, lambda comm: body(comm, Signum))]
    assert all(voters == 0 and agreement != agreement for agreement, voters in relayed[0][:2])


def test_nobody_talks_with_others_than_its_neighbours() -> None:
    log: list[Message] = []

    def body(comm: Comm) -> None:
        x = torch.nn.Parameter(torch.zeros(10))
        optimizer = RelaySignum([x], topology="binary_tree", comm=comm)
        comm.barrier()
        if comm.rank == 0:
            log.clear()
        comm.barrier()
        for _ in range(5):
            x.grad = torch.ones(10)
            optimizer.step()

    simulate(7, body, log=log)
    said = [message for message in log if message.verb == "post"]
    tree = registry.load("topology", "binary_tree")(7)
    assert {(m.source, m.dest) for m in said} == {(i, j) for i in range(7) for j in tree.neighbors[i]}
    assert len(said) == 5 * 2 * 6
    assert {m.verb for m in log} - {"post"} <= {"gather", "bcast"}  # the barrier


def test_overlapped_messages_travel_while_the_next_gradient_is_computed() -> None:
    def body(comm: Comm) -> bool:
        x = torch.nn.Parameter(torch.zeros(10))
        optimizer = RelaySignum([x], topology="chain", delay="overlapped", comm=comm)
        x.grad = torch.ones(10)
        optimizer.step()
        waits = bool(optimizer.relay.relays[0]._pending)
        optimizer.settle()
        return waits

    assert simulate(3, body) == [True] * 3


@pytest.mark.parametrize(
    "settings",
    [{"delay": "overlapped"}, {"topology": "chain", "zero": "abstain"}],
    ids=str,
)
@pytest.mark.parametrize("kind", [RelaySignum, StaleRelaySignum])
def test_the_variants_keep_the_contract(kind: Any, settings: dict[str, Any]) -> None:
    testing.check_algorithm(functools.partial(kind, **settings), ranks=(2, 3))


class Hasty(StaleRelaySignum):
    """Says that its models are equal."""

    replicated = True


def test_the_contract_finds_that_nobody_waited_for_the_farthest() -> None:
    with pytest.raises(AssertionError, match="2 voters, not 4"):
        testing.check_algorithm(functools.partial(Hasty, topology="chain"), ranks=(4,))


@pytest.mark.parametrize("delay", ["synchronous", "overlapped"])
def test_a_group_that_is_added_starts_anew_on_all_ranks_and_what_was_under_way_is_dropped(delay: str) -> None:
    def body(comm: Comm) -> list[list[float]]:
        x, y = (torch.nn.Parameter(torch.zeros(n)) for n in (70, 130))
        optimizer = RelaySignum([x], lr=0.25, momentum=0.0, topology="chain", delay=delay, comm=comm)
        models = []
        for step in range(12):
            if step == 6:
                optimizer.add_param_group({"params": [y]})
            for number, p in enumerate((x, y)):
                p.grad = torch.randn(
                    len(p), generator=torch.Generator().manual_seed(20 * step + 2 * comm.rank + number)
                )
            optimizer.step()
            models.append(x.tolist() + y.tolist())
        return models

    first, *others = simulate(4, body)
    assert all(models == first for models in others)
    late = 2 if delay == "synchronous" else 3
    assert all(models == first[5] for models in first[6 : 6 + late])
    assert all(value != 0 for value in first[6 + late][70:])  # one step of the new group


def test_stale_models_drift_apart_and_bear_lost_messages() -> None:
    def body(comm: Comm, loss: float) -> list[list[float]]:
        between = LossyComm(comm, loss, seed=1) if loss else comm
        return walk(between, functools.partial(StaleRelaySignum, topology="chain"), 30)

    for loss in (0.0, 0.3):
        ends = [models[-1] for models in simulate(5, body, loss)]
        assert len(set(map(tuple, ends))) == 5
        assert all(map(any, ends))


@pytest.mark.parametrize(
    "settings, error, words",
    [
        ({"topology": "ring"}, TopologyError, "spanning_tree:ring"),
        ({"topology": chain(5)}, TopologyError, "5 nodes, but there are 4 ranks"),
        ({"delay": "late"}, ParameterError, "'late'"),
        ({"tie": "heads"}, ParameterError, "'heads'"),
    ],
)
def test_what_is_wrong_on_one_rank_is_raised_on_all(settings: dict[str, Any], error: type, words: str) -> None:
    def body(comm: Comm) -> str:
        with pytest.raises(error) as caught:
            RelaySignum([torch.nn.Parameter(torch.zeros(1))], comm=comm, **(settings if comm.rank == 2 else {}))
        return str(caught.value)

    assert all(words in message for message in simulate(4, body))


@pytest.mark.parametrize("other", [{"topology": "chain"}, {"delay": "overlapped"}, {"tie": "plus"}])
def test_ranks_with_different_settings_are_told_so(other: dict[str, Any]) -> None:
    with pytest.raises(DisagreementError):
        simulate(5, lambda comm: RelaySignum([torch.zeros(1)], comm=comm, **(other if comm.rank else {})))


def accuracy(comm: Comm, kind: Any, epochs: int, **settings: Any) -> tuple[float, int]:
    """Train on digits; return the accuracy over all ranks' parts of the test data, and the checksum of this one's model."""
    config = Config(problem=ProblemConfig(), run=RunConfig(seed=0))
    task = build_task(comm, config)
    shard = share(comm, task, config)
    model = build_model(comm, task, shard, config)
    optimizer = kind(model.parameters(), comm=comm, **settings)
    random = torch.Generator().manual_seed(comm.rank)
    steps = int(comm.allreduce(torch.tensor([-(-len(shard.y_train) // 16)]), "max"))
    for _ in range(epochs):
        order = torch.randperm(len(shard.y_train), generator=random)
        for step in range(steps):
            batch = order[16 * step : 16 * (step + 1)]
            optimizer.zero_grad()
            if len(batch):
                task.loss(model, shard.x_train[batch], shard.y_train[batch]).backward()
            optimizer.step()
    optimizer.settle()
    with torch.no_grad():
        right = (model(task.inputs(shard.x_test)).argmax(1) == shard.y_test).sum()
    sums = comm.allreduce(torch.tensor([int(right), len(shard.y_test)]))
    return float(sums[0] / sums[1]), checksum(model.parameters())


def test_eight_workers_learn_digits_in_spite_of_the_delay() -> None:
    found = simulate(8, accuracy, functools.partial(RelaySignum, lr=5e-4), 12)
    assert len(set(found)) == 1  # the same model everywhere
    assert found[0][0] > 0.8  # it starts at 0.1
