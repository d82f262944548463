import networkx

from mpisign.topology import spanning
from mpisign.topology.davis import davis_southern_women
from mpisign.topology.outside import from_networkx


def test_the_social_graph_is_that_of_networkx_in_its_order():
    assert davis_southern_women() == from_networkx(networkx.davis_southern_women_graph())


def test_it_has_the_numbers_of_the_paper():
    graph = davis_southern_women()
    assert (graph.size, len(graph.edges), graph.diameter) == (32, 89, 4)
    assert {spanning.spanning_tree(graph, root).diameter for root in range(32)} == {5, 6, 7}


def test_women_meet_at_events_only():
    assert all(i < 18 <= j for i, j in davis_southern_women().edges)
