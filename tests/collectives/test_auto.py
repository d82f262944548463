import pytest

from mpisign import simulate
from mpisign.collectives import ServerVote, ShardedVote
from mpisign.collectives.auto import auto
from mpisign.kernels import Layout


@pytest.mark.parametrize(
    "numel, per_node, kind",
    [
        (7_510, 4, ServerVote),
        (7_510, 2, ServerVote),
        (1_000_000, 4, ServerVote),
        (1_000_000, 2, ShardedVote),
        (20_000_000, 4, ShardedVote),
        (20_000_000, 1, ShardedVote),
    ],
)
def test_small_ballots_go_to_a_server_and_large_ones_are_shared_out(numel: int, per_node: int, kind: type) -> None:
    assert simulate(4, lambda comm: type(auto(comm, Layout([numel]))), per_node=per_node) == [kind] * 4


def test_one_rank_hands_its_ballot_to_nobody() -> None:
    assert simulate(1, lambda comm: type(auto(comm, Layout([20_000_000])))) == [ServerVote]
