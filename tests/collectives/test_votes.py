import numpy as np
import pytest
import torch
from torch import nn

from mpisign import Signum, kernels, simulate
from mpisign.collectives import ServerVote, ShardedVote, TreeVote, Vote
from mpisign.collectives.hierarchical import HierarchicalVote
from mpisign.collectives.majority_of_majorities import MajorityOfMajorities
from mpisign.comm import Comm, Message
from mpisign.topology import Tree, binary_tree, chain, kary_tree, star


def step_traffic(size: int, vote: type[Vote], numels: list[int], **settings: object) -> tuple[list[int], int]:
    """Return the bytes that each rank sends in a step, and the most messages that one sends."""

    def body(comm: Comm) -> tuple[int, int]:
        optimizer = Signum([nn.Parameter(torch.zeros(n)) for n in numels], vote=vote, comm=comm, **settings)
        for p in optimizer.parameters:
            p.grad = torch.ones_like(p)
        sent, messages = comm.traffic.sent, comm.traffic.messages
        optimizer.step()
        return comm.traffic.sent - sent, comm.traffic.messages - messages

    traffic = simulate(size, body)
    return [sent for sent, _ in traffic], max(messages for _, messages in traffic)


@pytest.mark.parametrize("size", [2, 3, 4, 7, 16])
def test_a_worker_of_the_server_sends_one_bit_a_coordinate(size: int) -> None:
    numel = 100_000
    (server, *workers), _ = step_traffic(size, ServerVote, [numel])
    ballot = 8 * (1 + -(-numel // 64))
    assert workers == [ballot] * (size - 1)
    assert server == (size - 1) * (ballot + 8)
    assert ballot <= 1.01 * numel / 8


@pytest.mark.parametrize("size", [2, 3, 4, 7, 16])
def test_a_rank_of_the_sharded_vote_sends_two_bits_a_coordinate_whatever_the_ranks(size: int) -> None:
    numel = 1_000_000
    sent, _ = step_traffic(size, ShardedVote, [numel])
    assert max(sent) <= 1.01 * 2 * numel / 8 * (size - 1) / size


def test_abstaining_ties_cost_a_second_bit_downwards_only() -> None:
    (plain, worker), _ = step_traffic(2, ServerVote, [6400], tie="coin")
    (abstaining, same), _ = step_traffic(2, ServerVote, [6400], tie="abstain")
    assert same == worker
    assert abstaining - plain == 6400 // 8


@pytest.mark.parametrize("vote", [ServerVote, ShardedVote, TreeVote])
def test_two_hundred_tiny_tensors_are_one_message(vote: type[Vote]) -> None:
    _, one = step_traffic(4, vote, [2000])
    _, many = step_traffic(4, vote, [10] * 200)
    assert many == one


def test_what_is_counted_is_what_is_sent() -> None:
    log: list[Message] = []

    def body(comm: Comm) -> int:
        p = nn.Parameter(torch.zeros(1000))
        optimizer = Signum([p], comm=comm)
        comm.barrier()
        start = len(log), comm.traffic.sent
        p.grad = torch.ones_like(p)
        optimizer.step()
        return comm.traffic.sent - start[1] if comm.rank else start[0]

    first, *sent = simulate(4, body, log=log)
    ballots = [message for message in log[first:] if message.verb == "collect"]
    assert sorted(message.source for message in ballots) == [1, 2, 3]
    assert [message.nbytes for message in ballots] == sent


def test_the_servers_memory_is_logarithmic_in_the_workers() -> None:
    layout = kernels.Layout([64_000])
    for workers in (1, 3, 15, 1000):
        assert kernels.Tally(layout, workers).planes.nbytes == int(np.ceil(np.log2(workers + 1))) * 8 * layout.words


@pytest.mark.parametrize("server", [0, 2])
def test_any_rank_can_be_the_server(server: int) -> None:
    def body(comm: Comm) -> list[int]:
        layout = kernels.Layout([3])
        ballot = torch.zeros(layout.message, dtype=torch.uint64)
        one = np.ones(1, np.float32)
        signs = torch.tensor([1.0, -1.0, -1.0 if comm.rank else 1.0])
        kernels.sign_ballot(layout, [signs], None, one, one, "plus", 0, ballot)
        return kernels.unpack(ServerVote(comm, layout, server=server)(ballot, 0), 0).tolist()

    assert simulate(3, body) == [[1, -1, -1]] * 3


@pytest.mark.parametrize("tree", [chain(7), star(7, center=3), binary_tree(7), kary_tree(7, 3)])
@pytest.mark.parametrize("root", [0, 4])
def test_any_tree_gives_the_servers_verdict(tree: Tree, root: int) -> None:
    layout = kernels.Layout([200, 3, 64])

    def body(comm: Comm, vote: type[Vote], settings: dict[str, object]) -> list[bytes]:
        random = np.random.default_rng(comm.rank)
        counted = vote(comm, layout, "abstain", 1, **settings)
        verdicts = []
        for step in range(3):
            ballot = torch.zeros(layout.message, dtype=torch.uint64)
            signs = [torch.from_numpy(random.standard_normal(n).astype(np.float32)) for n in layout.numels]
            one = np.ones(3, np.float32)
            kernels.sign_ballot(
                layout, [*signs[:2], None if comm.rank == 2 else signs[2]], None, one, one, "plus", 0, ballot
            )
            verdicts.append(counted(ballot, step).message.numpy().tobytes())
        return verdicts

    assert simulate(7, body, TreeVote, {"tree": tree, "root": root}) == simulate(7, body, ServerVote, {})


def test_a_leaf_of_the_tree_sends_one_bit_a_coordinate() -> None:
    numel = 64_000
    sent, messages = step_traffic(7, TreeVote, [numel])
    assert min(sent) <= 1.01 * numel / 8
    assert messages <= 3  # two children and a parent, whatever the number of ranks


def test_a_tree_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="a tree of 3 nodes for 2 ranks"):
        simulate(2, lambda comm: TreeVote(comm, kernels.Layout([1]), tree=chain(3)))


def signs_of_nine(comm: Comm, vote: type[Vote]) -> list[float]:
    """Machines (+ + −) (+ + −) (− − −)."""
    layout = kernels.Layout([1])
    ballot = torch.zeros(layout.message, dtype=torch.uint64)
    sign = torch.tensor([-1.0 if comm.rank in (2, 5, 6, 7, 8) else 1.0])
    kernels.sign_ballot(layout, [sign], None, np.ones(1, np.float32), np.ones(1, np.float32), "plus", 0, ballot)
    return kernels.unpack(vote(comm, layout)(ballot, 0), 0).tolist()


def test_a_majority_of_majorities_is_another_vote_than_the_hierarchical_one() -> None:
    assert simulate(9, signs_of_nine, HierarchicalVote, per_node=3) == [[-1.0]] * 9
    assert simulate(9, signs_of_nine, MajorityOfMajorities, per_node=3) == [[1.0]] * 9


def between_machines(vote: type[Vote], numel: int) -> int:
    """Bytes that the ranks of two machines of four send one another in a step."""
    log: list[Message] = []

    def body(comm: Comm) -> int:
        p = nn.Parameter(torch.zeros(numel))
        optimizer = Signum([p], vote=vote, comm=comm)
        comm.barrier()
        first = len(log)
        p.grad = torch.ones_like(p)
        optimizer.step()
        return first

    first = min(simulate(8, body, log=log, per_node=4))
    return sum(message.nbytes for message in log[first:] if message.source // 4 != message.dest // 4)


def test_only_tallies_travel_between_machines() -> None:
    numel = 64_000
    # each of two machines sends half its tally of four, three bits a coordinate, and half of the verdict
    assert between_machines(HierarchicalVote, numel) == pytest.approx(2 * (3 + 1) * numel / 8 / 2, rel=0.01)
    # each rank sends half of its ballot to the other machine, and its eighth of the verdict to four ranks there
    assert between_machines(ShardedVote, numel) == pytest.approx(8 * (4 / 8 + 4 / 8) * numel / 8, rel=0.01)


def test_a_vote_that_only_sees_tallies_cannot_be_scored() -> None:
    with pytest.raises(ValueError, match="can't compare ballots with the verdict"):
        simulate(2, lambda comm: TreeVote(comm, kernels.Layout([1]), scored=True))


@pytest.mark.parametrize("vote", [ServerVote, ShardedVote])
@pytest.mark.parametrize("ballots", [1, 2])
def test_scores_say_who_differs_and_the_excluded_are_not_counted(vote: type[Vote], ballots: int) -> None:
    layout, one = kernels.Layout([100, 30]), np.ones(2, np.float32)

    def body(comm: Comm) -> tuple[list[list[int]], float]:
        signs = [torch.full((100,), -1.0 if comm.rank else 1.0), torch.ones(30) if comm.rank < 2 else None]
        ballot = torch.zeros(layout.message, dtype=torch.uint64)
        kernels.sign_ballot(layout, signs, None, one, one, "plus", 0, ballot)
        counted = vote(comm, layout, ballots=ballots, scored=True)
        counted(ballot.repeat(ballots), 0)
        scores = counted.scores.tolist()
        counted.excluded[1:] = True
        verdict = counted(ballot.repeat(ballots), 1)
        assert verdict.voters == 1
        return scores, kernels.unpack(verdict, 0)[0].item()

    assert simulate(3, body) == [([[100, 130], [0, 130], [0, 100]], 1.0)] * 3
