import numpy as np
import pytest

from mpisign import simulate
from mpisign.collectives.links import _partners, link_seconds
from mpisign.comm import Comm
from mpisign.topology.spanning import measured_tree


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 16])
def test_all_pairs_meet_once_and_both_agree_when(size: int) -> None:
    schedule = [_partners(rank, size) for rank in range(size)]
    met = set()
    for rank, partners in enumerate(schedule):
        for turn, partner in enumerate(partners):
            if partner is not None:
                assert schedule[partner][turn] == rank != partner
                met.add((rank, partner))
    assert met == {(i, j) for i in range(size) for j in range(size) if i != j}


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
def test_the_matrix_is_what_a_measured_tree_takes_and_costs_no_traffic(size: int) -> None:
    def body(comm: Comm) -> tuple[bytes, int]:
        seconds = link_seconds(comm, 1000, 2)
        assert measured_tree(seconds).size == comm.size
        assert np.array_equal(seconds, seconds.T)
        assert (seconds > 0).sum() == size * (size - 1)
        return seconds.tobytes(), comm.traffic.sent

    results = simulate(size, body)
    assert results == [(results[0][0], 0)] * size


def test_nothing_to_measure_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 byte"):
        simulate(2, lambda comm: link_seconds(comm, 0))
