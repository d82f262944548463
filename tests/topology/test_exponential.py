import numpy as np
import pytest

from mpisign.errors import TopologyError
from mpisign.topology import Digraph, OnePeerExponential, exponential


def exact_after(graph):
    """The rounds r after which x ← (x + received)/2 has given all the exact mean of each r-th part of 4 periods."""
    x = np.eye(graph.size)
    rounds = []
    for r in range(4 * graph.period):
        x = (x + x[[graph.source(node, r) for node in range(graph.size)]]) / 2
        if np.array_equal(x, np.full_like(x, 1 / graph.size)):  # halves of powers of two: no rounding
            rounds.append(r + 1)
            x = np.eye(graph.size)
    return rounds


@pytest.mark.parametrize("n", [2, 4, 8, 16])
def test_in_the_intended_order_the_mean_is_exact_every_log2_n_rounds(n):
    graph = OnePeerExponential(n)
    assert exact_after(graph) == [graph.period * k for k in (1, 2, 3, 4)]
    assert 2**graph.period == n


def test_two_rounds_a_step_are_exact_every_second_step_as_intended_and_every_fourth_in_the_references_order():
    assert [OnePeerExponential(16, "intended", 2).offset(r) for r in range(8)] == [1, 2, 4, 8, 1, 2, 4, 8]
    assert [OnePeerExponential(16, "reference", 2).offset(r) for r in range(8)] == [1, 1, 4, 8, 1, 4, 4, 2]
    assert exact_after(OnePeerExponential(16, "intended", 2)) == [4, 8, 12, 16]
    assert exact_after(OnePeerExponential(16, "reference", 2)) == [8, 16, 24, 32]


def test_who_is_sent_to_receives_from_the_sender():
    graph = OnePeerExponential(8)
    for r in range(5):
        dests = [graph.dest(node, r) for node in range(8)]
        assert sorted(dests) == list(range(8))
        assert all(graph.source(graph.dest(node, r), r) == node for node in range(8))


@pytest.mark.parametrize("order", ["intended", "reference"])
@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_offsets_repeat_after_a_period(order, rounds):
    graph = OnePeerExponential(16, order, rounds)
    assert [graph.offset(r) for r in range(50)] == [graph.offset(r + graph.period) for r in range(50)]


def test_a_single_node_sends_to_itself():
    assert (OnePeerExponential(1).offset(3), OnePeerExponential(1).dest(0, 3), OnePeerExponential(1).period) == (
        0,
        0,
        1,
    )


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((12,), "needs a power of two of nodes, got 12"),
        ((0,), "needs at least 1 node, got 0"),
        ((8, "slip"), "order must be intended or reference, got 'slip'"),
        ((8, "intended", 0), "rounds_a_step must be at least 1, got 0"),
    ],
)
def test_what_can_not_be_is_refused(arguments, message):
    with pytest.raises(TopologyError, match=message):
        OnePeerExponential(*arguments)


def test_a_question_about_no_node_is_refused():
    for ask in (OnePeerExponential(4).dest, OnePeerExponential(4).source):
        with pytest.raises(TopologyError, match="no node 4 in a one-peer exponential graph of 4"):
            ask(4, 0)


@pytest.mark.parametrize("n, diameter", [(1, 0), (2, 1), (3, 1), (4, 2), (7, 2), (8, 3), (16, 4), (32, 5)])
def test_in_the_static_graph_all_are_at_most_log2_n_hops_away(n, diameter):
    graph = exponential(n)
    assert isinstance(graph, Digraph)
    assert graph.diameter == diameter
    assert {len(each) for each in graph.successors} == {(n - 1).bit_length()}
