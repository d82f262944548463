import functools
from typing import Any

import pytest
import torch
from torch import Tensor

from mpisign import RelayMix, RelaySGD, RelaySGDGrad, simulate
from mpisign.assembly import build_model, build_task, share
from mpisign.comm import Comm, Message
from mpisign.config import Config, ProblemConfig, RunConfig
from mpisign.errors import DisagreementError, ParameterError, TopologyError
from mpisign.topology import Graph, chain, complete, double_binary_trees, ring, torus
from mpisign.topology.delays import correction, delays
from mpisign.topology.repair import repaired

pytestmark = pytest.mark.usefixtures("global_chance_is_untouched")


def step(optimizer: Any, x: Tensor, seed: int) -> Tensor:
    """Take a step; return the model before it was averaged."""
    x.grad = torch.randn(len(x), dtype=x.dtype, generator=torch.Generator().manual_seed(seed))
    before = x.detach().clone()
    optimizer.step()
    return before - 0.1 * x.grad


Paths = tuple[Tensor, Tensor, Tensor]


def broken_run(comm: Comm, graph: Graph, lost: list, before: int, after: int, **settings: Any) -> Paths | None:
    """Train, lose something, go on; return the models before and after averaging since, and the one at the loss."""
    x = torch.nn.Parameter(torch.zeros(6, dtype=torch.float64))
    optimizer = RelaySGD([x], lr=0.1, momentum=0.0, comm=comm, **settings)
    for t in range(before):
        step(optimizer, x, 100 * t + comm.rank)
    gone = [what for what in lost if isinstance(what, int)]
    part = comm.split(int(comm.rank in gone)) if gone else None
    if comm.rank in gone:
        return None
    at = x.detach().clone()
    optimizer.repair(graph, lost, part)
    assert torch.equal(x, at)
    own, means = [], []
    for t in range(before, before + after):
        own.append(step(optimizer, x, 100 * t + comm.rank))
        means.append(x.detach().clone())
    optimizer.settle()
    return torch.stack(own), torch.stack(means), at


@pytest.mark.parametrize("delay", ["synchronous", "overlapped"])
@pytest.mark.parametrize("lost", [[(2, 3)], [(0, 1), (4, 5)], [3], [0, (5, 6)]], ids=str)
@pytest.mark.parametrize("fill", ["initial", "counts"])
def test_after_the_longest_delay_of_the_new_tree_the_mean_is_exact_again(lost: list, delay: str, fill: str) -> None:
    graph, tree = torus(9), chain(9)
    graph = Graph.from_edges(9, sorted({*graph.edges, *tree.edges}))
    new = repaired(tree, graph, lost)
    late = delays(new, delay)
    ran = simulate(9, functools.partial(broken_run, topology=tree, delay=delay, fill=fill), graph, lost, 5, 14)
    left = [paths for paths in ran if paths is not None]
    assert len(left) == new.size
    for i, (_, means, at) in enumerate(left):
        for t in range(14):
            there = [j for j in range(new.size) if t >= late[i, j]]
            expected = sum(left[j][0][t - int(late[i, j])] for j in there)
            missing = new.size - len(there) if fill == "initial" else 0  # the model at the repair stands for these
            expected = (expected + missing * at) / (missing + len(there))
            assert torch.allclose(means[t], expected, rtol=0, atol=1e-12)  # another order of summation
        assert len(there) == new.size


def test_no_models_are_lost() -> None:
    """Without updates all end at a weighted mean of the models at the repair, that of the survivors alone."""

    def body(comm: Comm) -> tuple[float, float] | None:
        x = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
        optimizer = RelaySGD([x], lr=1.0, momentum=0.0, topology="chain", comm=comm)
        with torch.no_grad():
            x.fill_(1000.0 if comm.rank == 5 else comm.rank)
        part = comm.split(int(comm.rank == 5))
        if comm.rank == 5:
            return None
        optimizer.repair(ring(6), [5], part)
        start = x.item()
        for _ in range(100):
            optimizer.step()
        return start, x.item()

    ran = [found for found in simulate(6, body) if found]
    assert [start for start, _ in ran] == [0, 1, 2, 3, 4]
    ends = [end for _, end in ran]
    assert ends == pytest.approx([ends[0]] * 5, abs=1e-9)  # what is left of |λ₂|¹⁰⁰
    assert 1 < ends[0] < 3


def test_messages_go_along_the_new_edges_only() -> None:
    log: list[Message] = []

    def body(comm: Comm) -> None:
        x = torch.nn.Parameter(torch.zeros(4))
        optimizer = RelaySGD([x], topology="chain", delay="overlapped", comm=comm)
        for t in range(3):
            step(optimizer, x, t)
        optimizer.repair(ring(6), [(2, 3)])
        comm.barrier()
        if comm.rank == 0:
            log.clear()
        comm.barrier()
        for t in range(3):
            step(optimizer, x, t)
        optimizer.settle()

    simulate(6, body, log=log)
    used = {(min(m.source, m.dest), max(m.source, m.dest)) for m in log if m.verb == "post"}
    assert used == {(0, 1), (1, 2), (3, 4), (4, 5), (0, 5)}


def test_both_trees_are_repaired_and_the_correction_is_theirs() -> None:
    trees, graph = double_binary_trees(8), complete(8)
    lost = trees[0].edges[2]

    def body(comm: Comm) -> tuple[Any, float]:
        optimizer = RelaySGD([torch.zeros(5)], topology=trees, correction=True, comm=comm)
        optimizer.repair(graph, [lost])
        return optimizer.trees, optimizer.scale

    new = tuple(repaired(tree, graph, [lost]) for tree in trees)
    assert simulate(8, body) == [(new, sum(map(correction, new)) / 2)] * 8


def test_where_no_tree_has_lost_anything_messages_go_on() -> None:
    def body(comm: Comm, repair: bool) -> list[float]:
        x = torch.nn.Parameter(torch.zeros(4))
        optimizer = RelaySGD([x], topology="chain", comm=comm)
        for t in range(8):
            if repair and t == 4:
                optimizer.repair(ring(5), [(0, 4)])
            step(optimizer, x, 10 * t + comm.rank)
        return x.tolist()

    assert simulate(5, body, True) == simulate(5, body, False)


@pytest.mark.parametrize("times", [1, 20])
def test_it_can_be_repaired_again_and_again_while_messages_are_under_way(times: int) -> None:
    def body(comm: Comm) -> tuple[list[float], list[list[float]]]:
        x = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))
        optimizer = RelaySGD([x], lr=0.1, momentum=0.0, topology="chain", delay="overlapped", comm=comm)
        for t in range(times):
            step(optimizer, x, t)
            optimizer.repair(ring(3), [(t % 3, (t + 1) % 3)])
        own = [step(optimizer, x, comm.rank).tolist() for _ in range(5)]
        return x.tolist(), own

    left = simulate(3, body)
    late = delays(repaired(chain(3), ring(3), [((times - 1) % 3, times % 3)]), "overlapped")
    for i, (mean, _) in enumerate(left):
        expected = [sum(left[j][1][4 - int(late[i, j])][k] for j in range(3)) / 3 for k in range(2)]
        assert mean == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("codec", ["sign", "qsgd:16"])
def test_through_a_codec_it_goes_on_too(codec: str) -> None:
    def body(comm: Comm) -> float | None:
        center = torch.randn(20, generator=torch.Generator().manual_seed(comm.rank))
        x = torch.nn.Parameter(torch.zeros(20))
        optimizer = RelaySGD([x], lr=0.1, momentum=0.0, topology="chain", codec=codec, comm=comm)
        for t in range(400):
            if t == 50:
                part = comm.split(int(comm.rank == 2))
                if comm.rank == 2:
                    return None
                optimizer.repair(ring(6), [2], part)
            x.grad = x.detach() - center
            optimizer.step()
        optimum = optimizer.comm.allreduce(center.clone()) / 5
        return float((x.detach() - optimum).norm() / optimum.norm())

    assert all(apart < 1e-3 for apart in simulate(6, body) if apart is not None)


@pytest.mark.parametrize(
    "kind, lost, error, words",
    [
        (RelaySGD, [(1, 2), (0, 4)], TopologyError, "falls apart"),
        (RelaySGD, [(1, 3)], TopologyError, "can't be lost"),
        (RelaySGD, [2], ParameterError, "4 are left: give their communicator"),
        (RelaySGDGrad, [(1, 2)], ParameterError, "relays updates"),
        (RelayMix, [(1, 2)], ParameterError, "relays updates"),
    ],
)
def test_what_can_not_be_repaired_changes_nothing(kind: Any, lost: list, error: type, words: str) -> None:
    def body(comm: Comm) -> list[float]:
        x = torch.nn.Parameter(torch.zeros(4))
        optimizer = kind([x], topology="chain", comm=comm)
        for t in range(8):
            if t == 4 and lost:
                with pytest.raises(error, match=words):
                    optimizer.repair(ring(5), lost)
            step(optimizer, x, 10 * t + comm.rank)
        return x.tolist()

    broken = simulate(5, body)
    lost = []
    assert broken == simulate(5, body)


def test_ranks_that_were_told_of_different_losses_say_so() -> None:
    def body(comm: Comm) -> None:
        optimizer = RelaySGD([torch.zeros(1)], topology="chain", comm=comm)
        optimizer.repair(ring(5), [(1, 2)] if comm.rank else [(2, 3)])

    with pytest.raises(DisagreementError, match="different graphs or losses"):
        simulate(5, body)


def accuracy(comm: Comm, lost: list, epochs: int = 8) -> float | None:
    """Train on digits along a chain, lose something halfway; return the mean accuracy of the models that are left."""
    config = Config(problem=ProblemConfig(partition="dirichlet:0.3"), run=RunConfig(seed=0))
    task = build_task(comm, config)
    shard = share(comm, task, config)
    model = build_model(comm, task, shard, config)
    optimizer = RelaySGD(model.parameters(), lr=0.1, topology="chain", comm=comm)
    random = torch.Generator().manual_seed(comm.rank)
    steps = int(comm.allreduce(torch.tensor([-(-len(shard.y_train) // 16)]), "max"))
    gone = [what for what in lost if isinstance(what, int)]
    for epoch in range(epochs):
        if epoch == epochs // 2 and lost:
            part = comm.split(int(comm.rank in gone)) if gone else None
            if comm.rank in gone:
                return None
            optimizer.repair(torus_and_chain(comm.size), lost, part)
        order = torch.randperm(len(shard.y_train), generator=random)
        for batch in torch.split(torch.nn.functional.pad(order, (0, 16 * steps - len(order)), value=-1), 16):
            batch = batch[batch >= 0]
            optimizer.zero_grad()
            if len(batch):
                task.loss(model, shard.x_train[batch], shard.y_train[batch]).backward()
            optimizer.step()
    with torch.no_grad():
        found = model(task.inputs(shard.x_test)).argmax(1)
    sums = optimizer.comm.allreduce(torch.tensor([int((found == shard.y_test).sum()), len(shard.y_test)]))
    return float(sums[0] / sums[1])


def torus_and_chain(n: int) -> Graph:
    return Graph.from_edges(n, sorted({*torus(n).edges, *chain(n).edges}))


def test_training_goes_on_to_nearly_the_same_accuracy() -> None:
    whole, without_edge, without_worker = (simulate(8, accuracy, lost)[0] for lost in ([], [(3, 4)], [5]))
    assert whole > 0.9
    assert without_edge > whole - 0.03  # 360 test samples: a standard error is 0.013
    assert without_worker > whole - 0.06  # and an eighth of the data is gone, of some classes more
