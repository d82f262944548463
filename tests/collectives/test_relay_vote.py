import numpy as np
import pytest
import torch
from torch import Tensor

from mpisign import kernels, seeding, simulate
from mpisign.collectives import ServerVote
from mpisign.collectives.relay_sum import DELAYS, RelaySum
from mpisign.collectives.relay_tally import RelayTally, least_late, ranks_behind
from mpisign.collectives.relay_vote import RelayVote
from mpisign.comm import Comm, LossyComm
from mpisign.topology import Tree, binary_tree, chain, double_binary_trees, star
from mpisign.topology.delays import delays

pytestmark = pytest.mark.usefixtures("global_chance_is_untouched")

LAYOUT = kernels.Layout((0, 1, 63, 64, 65, 301))


def random_tree(n: int, seed: int = 0) -> Tree:
    random = np.random.default_rng(seed)
    names = random.permutation(n).tolist()
    return Tree.from_edges(n, [(names[k], names[int(random.integers(k))]) for k in range(1, n)])


def ballot(rank: int, step: int, number: int = 0) -> Tensor:
    """A ballot of chance, which abstains on each parameter in a fifth of all cases."""
    random = seeding.generator(5, rank, f"ballot {step} {number}")
    message = torch.zeros(LAYOUT.message, dtype=torch.uint64)
    gradients = [
        torch.from_numpy(random.standard_normal(n).astype(np.float32)) if random.random() < 0.8 else None
        for n in LAYOUT.numels.tolist()
    ]
    one = np.ones(len(gradients), np.float32)
    kernels.sign_ballot(LAYOUT, gradients, None, one, one, "plus", 0, message)
    return message


def ballots(rank: int, step: int, each: int) -> Tensor:
    return torch.cat([ballot(rank, step, number) for number in range(each)])


def bits(tally: kernels.Tally) -> tuple[bytes, list[int], int]:
    return tally.counters().numpy().tobytes(), tally.voters.tolist(), tally.count


TREES = [
    [chain(1)], [chain(2)], [chain(3)], [chain(7)], [star(6, center=2)], [binary_tree(9)], [random_tree(8)],
    double_binary_trees(5), double_binary_trees(8),
]  # fmt: skip


@pytest.mark.parametrize("delay", DELAYS)
@pytest.mark.parametrize("trees", TREES, ids=lambda trees: f"{len(trees)}x{trees[0].size}, {trees[0].diameter} hops")
def test_every_verdict_is_the_servers_some_steps_later_on_all_ranks(trees: list[Tree], delay: str) -> None:
    size, late = trees[0].size, least_late(trees, delay)
    for tie, each in [("coin", 1), ("abstain", 2), ("plus", 1)]:

        def body(comm: Comm, tie: kernels.Tie = tie, each: int = each) -> tuple[list[bytes], list[bytes], list[bytes]]:
            relayed = RelayVote(comm, LAYOUT, tie, 3, ballots=each, trees=trees, delay=delay)
            server = ServerVote(comm, LAYOUT, tie, 3, ballots=each)
            assert relayed.late == late
            mine, theirs, own = [], [], []
            for t in range(late + 4):
                mine.append(relayed(ballots(comm.rank, t, each), t).message.numpy().tobytes())
                own.append(relayed.own.numpy().tobytes())
                theirs.append(server(ballots(comm.rank, t, each), t).message.numpy().tobytes())
            return mine, theirs, own

        for rank, (mine, theirs, own) in enumerate(simulate(size, body)):
            assert mine[late:] == theirs[:4]
            assert not any(map(any, mine[:late]))  # nothing is decided, and nobody has voted
            assert own[late:] == [ballots(rank, t, each).numpy().tobytes() for t in range(4)]


@pytest.mark.parametrize("delay", DELAYS)
@pytest.mark.parametrize(
    "tree", [chain(6), binary_tree(7), star(5), random_tree(9, 3)], ids=lambda tree: str(tree.size)
)
def test_ballots_as_they_come_are_counted_once_after_their_delay(tree: Tree, delay: str) -> None:
    late, steps = delays(tree, delay), tree.size + 3

    def body(comm: Comm) -> list[tuple[bytes, list[int], int, int]]:
        relay = RelayTally(comm, tree, LAYOUT, delay=delay)
        found = []
        for t in range(steps):
            relay.start(ballot(comm.rank, t).view(1, -1))
            tally = relay.finish()
            found.append((*bits(tally), tally.added))
        return found

    for i, found in enumerate(simulate(tree.size, body)):
        for t, (*counted, added) in enumerate(found):
            there = [(j, t - int(late[i, j])) for j in range(tree.size) if t >= late[i, j]]
            expected = kernels.Tally(LAYOUT, tree.size)
            expected.add([ballot(j, step) for j, step in there])
            assert counted == list(bits(expected))
            assert added == len(there)


def test_a_message_has_as_many_bits_a_coordinate_as_the_ballots_behind_it_need() -> None:
    tree = chain(8)

    def body(comm: Comm) -> tuple[int, int]:
        relay = RelayTally(comm, tree, LAYOUT, late=7)
        before = comm.traffic.sent
        relay.start(ballot(comm.rank, 0).view(1, -1))
        relay.finish()
        return comm.traffic.sent - before, relay.nbytes

    for rank, (sent, nbytes) in enumerate(simulate(8, body)):
        behind = [len(there) for there in ranks_behind(tree, rank).values()]
        planes = sum((8 - count).bit_length() for count in behind)
        assert sent == nbytes == 8 * (planes * LAYOUT.words + len(behind) * (len(LAYOUT.numels) + 2))


@pytest.mark.parametrize("stale", [False, True])
@pytest.mark.parametrize("delay", DELAYS)
def test_a_vote_goes_on_from_its_state(delay: str, stale: bool) -> None:
    settings = {"trees": [random_tree(6), chain(6)], "delay": delay, "stale": stale, "ballots": 2}

    def verdicts(comm: Comm, resumed: bool) -> list[bytes]:
        vote, found = RelayVote(comm, LAYOUT, "coin", 3, **settings), []
        for t in range(12):
            if resumed and t == 6:
                state = {name: block.clone() for name, block in vote.state().items()}
                vote = RelayVote(comm, LAYOUT, "coin", 3, **settings)
                vote.restore(state)
            found.append(vote(ballots(comm.rank, t, 2), t).message.numpy().tobytes())
        return found

    assert simulate(6, verdicts, False) == simulate(6, verdicts, True)


def test_a_lost_message_only_takes_its_ballots_with_it() -> None:
    tree = random_tree(6, 1)

    def body(comm: Comm) -> tuple[list[int], list[int]]:
        relay, tallies = RelayTally(LossyComm(comm, 0.3, seed=2), tree, LAYOUT), []
        for t in range(30):
            relay.start(ballot(comm.rank, t).view(1, -1))
            tallies.append(relay.finish().added)
        same, sums = RelaySum(LossyComm(comm, 0.3, seed=2), tree, 1), []  # whose counts are tested in test_relay.py
        for _ in range(30):
            same(torch.zeros(1))
            sums.append(same.count)
        return tallies, sums

    for tallies, sums in simulate(6, body):
        assert tallies == sums
        assert min(tallies) < 6


def test_trees_must_fit_the_ranks() -> None:
    with pytest.raises(ValueError, match="5 nodes for 4 ranks"):
        simulate(4, lambda comm: RelayVote(comm, LAYOUT, trees=[chain(5)]))
