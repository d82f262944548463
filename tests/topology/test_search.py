import pytest

from mpisign.topology import chain, complete, hypercube, ring, star
from mpisign.topology.search import breadth_first, depths, first_unreached, longest_distance, path_to


def test_two_roots_share_the_nodes_between_them():
    found = breadth_first(chain(6).neighbors, 0, 5)
    assert found == {0: None, 5: None, 1: 0, 4: 5, 2: 1, 3: 4}
    assert depths(found) == {0: 0, 5: 0, 1: 1, 4: 1, 2: 2, 3: 2}
    assert path_to(3, found) == (5, 4, 3)


def test_what_is_not_reached_is_not_found():
    assert breadth_first(((1,), (0,), ()), 0) == {0: None, 1: 0}
    assert first_unreached(((1,), (0,), ())) == 2
    assert first_unreached(((1,), (0,), ()), roots=(0, 2)) is None


@pytest.mark.parametrize(
    "graph, diameter",
    [(chain(1), 0), (chain(2), 1), (chain(7), 6), (ring(7), 3), (ring(8), 4), (star(5), 2), (complete(4), 1)],
)
def test_the_longest_distance_is_exact(graph, diameter):
    assert longest_distance(graph.neighbors) == diameter


def test_bounds_save_nearly_all_searches_in_a_tree(monkeypatch):
    from mpisign.topology import search

    long, wide = chain(2000), hypercube(16)
    searched = []
    plain = search.breadth_first
    monkeypatch.setattr(
        search, "breadth_first", lambda neighbors, *roots: searched.append(roots) or plain(neighbors, *roots)
    )
    assert search.longest_distance(long.neighbors) == 1999
    assert len(searched) <= 3
    searched.clear()
    assert search.longest_distance(wide.neighbors) == 4
    assert len(searched) <= 16
