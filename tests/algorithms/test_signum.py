import numpy as np
import pytest
import torch
from protocols import batch, fit, small_model
from torch import nn

from mpisign import SGD, SignSGD, Signum, checksum, reference, seeding, simulate
from mpisign.collectives import ServerVote
from mpisign.comm import Comm
from mpisign.errors import DisagreementError, ParameterError
from mpisign.kernels import stream

pytestmark = pytest.mark.usefixtures("global_chance_is_untouched")


def parameter(*values: float, dtype: torch.dtype = torch.float32) -> nn.Parameter:
    return nn.Parameter(torch.tensor(values, dtype=dtype))


def steps(size: int, gradients, kind=Signum, start=(0.0,), count: int = 1, **settings) -> list[float]:
    """Take `count` steps from `start` with gradients(rank, step), and return where all ranks end."""

    def body(comm: Comm) -> list[float]:
        p = parameter(*start)
        optimizer = kind([p], comm=comm, **settings)
        for step in range(count):
            gradient = gradients(comm.rank, step)
            p.grad = None if gradient is None else torch.tensor(gradient)
            optimizer.step()
        return p.tolist()

    ends = simulate(size, body)
    assert all(end == ends[0] for end in ends)
    return ends[0]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("tie", ["coin", "plus", "abstain"])
def test_twenty_steps_equal_the_reference_bit_for_bit(size: int, tie: str) -> None:
    numel, lr, beta, decay = 200, 0.01, 0.9, 0.1
    draws = np.random.default_rng(size).standard_normal((20, size, numel)).astype(np.float32)
    draws[:, :, ::7] = 0
    start = np.random.default_rng(1).standard_normal(numel).astype(np.float32)

    def body(comm: Comm) -> bytes:
        p = nn.Parameter(torch.from_numpy(start.copy()))
        optimizer = Signum([p], lr, beta, decay, tie=tie, seed=3, comm=comm)
        for step in range(20):
            p.grad = torch.from_numpy(draws[step, comm.rank].copy())
            optimizer.step()
        return p.detach().numpy().tobytes()

    x, velocity = start, np.zeros((size, numel), np.float32)
    for step in range(20):
        velocity = reference.momentum(velocity, draws[step], beta, 1 - beta)
        keys = [stream(seeding.key(3, rank, "zeros"), step) for rank in range(size)]
        ballots = np.array([reference.negatives(v, "coin", key) for v, key in zip(velocity, keys, strict=True)])
        negative, tied = reference.majority(ballots, tie, stream(seeding.key(3, seeding.SHARED, "ties"), step))
        x = reference.descend(x, negative, lr, 1 - lr * decay, tied if tie == "abstain" else None)
    assert simulate(size, body) == [x.tobytes()] * size


def test_the_majority_of_three_wins() -> None:
    assert steps(3, lambda rank, _: [1.0 if rank else -1.0], lr=0.5) == [-0.5]


def test_one_rank_without_momentum_is_plain_sign_descent() -> None:
    assert steps(1, lambda *_: [2.0, -0.1], SignSGD, (1.0, 1.0), lr=0.25) == [0.75, 1.25]


def test_momentum_outlives_a_single_step() -> None:
    # v = 0.9·(0.1·1) − 0.1·0.5 > 0: a Signum that forgot its momentum would step up
    assert steps(1, lambda _, step: [1.0 if step == 0 else -0.5], lr=1.0, count=2) == [-2.0]
    assert steps(1, lambda _, step: [1.0 if step == 0 else -0.5], SignSGD, lr=1.0, count=2) == [0.0]


def test_weight_decay_never_enters_the_vote() -> None:
    # x ← x − η(V + λx) with V = −1, although −λx would outvote it
    assert steps(1, lambda *_: [-1.0], lr=0.5, weight_decay=1.0, start=(4.0,)) == [2.5]


def test_ties_drift_with_plus_and_stay_with_abstain_and_coin() -> None:
    count, lr = 400, 1.0
    noise = np.random.default_rng(0).standard_normal((count, 2, 256)).astype(np.float32)

    def drift(tie: str) -> float:
        ends = steps(2, lambda r, s: noise[s, r].tolist(), SignSGD, (0.0,) * 256, lr=lr, count=count, tie=tie)
        return float(np.mean(ends)) / count

    # half of all votes tie at n = 2; four standard deviations of a mean of 256·400 steps of ±1
    tolerance = 4 / np.sqrt(256 * count)
    assert abs(drift("plus") + 0.5) < tolerance
    assert abs(drift("coin")) < tolerance
    assert abs(drift("abstain")) < tolerance


def test_a_tie_abstains_from_the_step_but_not_from_the_decay() -> None:
    end = steps(2, lambda rank, _: [1.0 - 2 * rank], start=(2.0,), lr=0.5, weight_decay=0.5, tie="abstain")
    assert end == [1.5]


def test_a_weight_without_gradient_drifts_with_plus_and_not_with_coin() -> None:
    plus = steps(3, lambda *_: [0.0] * 256, start=(0.0,) * 256, lr=1.0, count=100, zero="plus")
    assert plus == [-100.0] * 256
    coin = steps(3, lambda *_: [0.0] * 256, start=(0.0,) * 256, lr=1.0, count=100, zero="coin")
    assert abs(np.mean(coin)) < 4 * np.sqrt(100 / 256)  # four standard deviations
    assert len(set(coin)) > 10


def test_workers_toss_different_coins_for_zeros() -> None:
    # three equal coins would always be unanimous: |x| after one step is 1 either way, so count agreement instead
    def body(comm: Comm) -> float:
        p = nn.Parameter(torch.zeros(4096))
        optimizer = Signum([p], comm=comm)
        p.grad = torch.zeros(4096)
        optimizer.step()
        return optimizer.report.agreement

    assert all(abs(agreement - 0.75) < 0.04 for agreement in simulate(3, body))  # 3 fair coins: 3/4 agree


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_bad_gradient_on_one_worker_harms_nobody_and_is_reported(bad: float) -> None:
    def body(comm: Comm) -> tuple[list[float], list[int]]:
        p = parameter(0.0, 0.0)
        optimizer = Signum([p], lr=1.0, comm=comm)
        voters = []
        for step in range(3):
            p.grad = torch.tensor([1.0, bad if comm.rank == 1 and step < 2 else -1.0])
            optimizer.step()
            voters.append(optimizer.report.voters)
        return p.tolist(), voters

    with pytest.warns(RuntimeWarning) as told:
        assert simulate(3, body) == [([-3.0, 3.0], [2, 2, 3])] * 3
    assert [str(w.message)[:47] for w in told] == ["rank 1: the gradient of step 0 is not finite; t"]


def test_a_worker_without_a_batch_abstains() -> None:
    assert steps(3, lambda rank, _: None if rank == 2 else [float(rank) - 0.5], lr=1.0, tie="abstain") == [0.0]
    assert steps(3, lambda rank, _: None if rank else [-1.0], lr=1.0) == [1.0]


def test_all_ranks_start_from_rank_zeros_parameters() -> None:
    def body(comm: Comm) -> int:
        model = small_model(seed=comm.rank)
        Signum(model.parameters(), comm=comm)
        return checksum(model.parameters())

    assert simulate(4, body) == [checksum(small_model(seed=0).parameters())] * 4


def test_a_ballot_is_a_bit_a_coordinate_and_a_bit_a_parameter() -> None:
    def body(comm: Comm) -> tuple[int, int]:
        model = nn.Sequential(nn.utils.skip_init(nn.Linear, 784, 100), nn.utils.skip_init(nn.Linear, 100, 10))
        optimizer = Signum([p.zero_() for p in model.requires_grad_(False).parameters()], comm=comm)
        before = comm.traffic.sent
        optimizer.step()
        return comm.traffic.sent - before, optimizer.bytes_up

    up = 8 * (1 + 784 * 100 // 64 + 2 + 16 + 1)
    assert simulate(4, body) == [(3 * (up + 8), up)] + [(up, up)] * 3
    assert 4 * 79_510 / up > 31.5


def test_half_precision_does_not_lose_small_steps() -> None:
    def body(comm: Comm) -> float:
        p = parameter(1.0, dtype=torch.bfloat16)
        optimizer = Signum([p], lr=1e-3, comm=comm)
        for _ in range(100):
            p.grad = torch.ones_like(p)
            optimizer.step()
        return p.item()

    assert simulate(1, body) == [pytest.approx(0.9, abs=4e-3)]  # a bfloat16 near 0.9 is 2^-8 apart


def test_channels_last_parameters_train_like_contiguous_ones() -> None:
    def body(comm: Comm, layout: torch.memory_format) -> torch.Tensor:
        draw = torch.Generator().manual_seed(0)
        p = nn.Parameter(torch.randn(4, 3, 5, 5, generator=draw).to(memory_format=layout))
        optimizer = Signum([p], lr=0.1, comm=comm)
        for _ in range(3):
            p.grad = torch.randn(4, 3, 5, 5, generator=draw)
            optimizer.step()
        assert optimizer.state[p]["momentum"].shape == p.shape
        return p.detach().contiguous()

    assert torch.equal(simulate(1, body, torch.channels_last)[0], simulate(1, body, torch.contiguous_format)[0])


def test_gradients_may_accumulate_over_several_batches() -> None:
    def body(comm: Comm, parts: int) -> int:
        model = small_model()
        optimizer = SignSGD(model.parameters(), comm=comm)
        x, y = batch(comm.rank, 0, size=32)
        for part_x, part_y in zip(x.chunk(parts), y.chunk(parts), strict=True):
            (nn.functional.cross_entropy(model(part_x), part_y) / parts).backward()
        optimizer.step()
        return checksum(model.parameters())

    assert simulate(3, body, 1) == simulate(3, body, 4)


def test_tied_weights_are_voted_on_once() -> None:
    def body(comm: Comm) -> int:
        model = nn.Sequential(
            nn.utils.skip_init(nn.Linear, 4, 4, bias=False), nn.utils.skip_init(nn.Linear, 4, 4, bias=False)
        )
        model[1].weight = model[0].weight
        return sum(Signum(model.parameters(), comm=comm).layout.numels)

    assert simulate(2, body) == [16, 16]


def test_a_group_added_later_is_trained_and_the_momentum_of_the_others_kept() -> None:
    def body(comm: Comm) -> list[float]:
        first, second = parameter(0.0), parameter(float(comm.rank))
        optimizer = Signum([first], lr=1.0, comm=comm)
        first.grad = torch.tensor([1.0])
        optimizer.step()
        optimizer.add_param_group({"params": [second], "lr": 0.5})
        first.grad, second.grad = torch.tensor([-0.5]), torch.tensor([-1.0])
        optimizer.step()
        return [first.item(), second.item()]

    assert simulate(3, body) == [[-2.0, 0.5]] * 3


def test_state_survives_torch_save(tmp_path) -> None:
    def body(comm: Comm) -> bool:
        model = small_model()
        optimizer = Signum(model.parameters(), comm=comm)
        x, y = batch(comm.rank, 0)
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        torch.save(optimizer.state_dict(), tmp_path / f"{comm.rank}.pt")
        other = Signum(small_model().parameters(), comm=comm)
        other.load_state_dict(torch.load(tmp_path / f"{comm.rank}.pt", weights_only=True))
        return torch.equal(other.memory, optimizer.memory) and other.steps_taken == 1

    assert simulate(2, body) == [True, True]


@pytest.mark.parametrize("kind", [Signum, SignSGD, SGD])
@pytest.mark.parametrize(
    "broken, words",
    [
        (lambda: parameter(1.0, dtype=torch.complex64), "complex64: only float32"),
        (lambda: nn.Parameter(torch.ones(2).to_sparse()), "only dense"),
        (lambda: nn.Parameter(torch.empty(2, device="meta")), "is on meta"),
        (lambda: torch.ones(2) * nn.Parameter(torch.ones(2)), "leaf"),
    ],
)
def test_a_parameter_that_cannot_be_trained_is_refused_on_all_ranks(kind, broken, words: str) -> None:
    def body(comm: Comm) -> str:
        try:
            kind([parameter(1.0), broken() if comm.rank == 1 else parameter(1.0)], comm=comm)
        except ParameterError as error:
            return str(error)
        return ""

    messages = simulate(3, body)
    assert len(set(messages)) == 1
    assert words in messages[0]


@pytest.mark.parametrize(
    "settings",
    [
        {"lr": -1.0},
        {"lr": float("nan")},
        {"momentum": 1.0},
        {"momentum": -0.1},
        {"weight_decay": -1.0},
        {"tie": "maybe"},
    ],
)
def test_a_bad_hyperparameter_is_refused_on_all_ranks(settings: dict[str, object]) -> None:
    name, value = next(iter(settings.items()))
    for wrong in (0, 1):

        def body(comm: Comm, wrong: int = wrong) -> str:
            try:
                Signum([parameter(1.0)], comm=comm, **(settings if comm.rank == wrong else {}))
            except ParameterError as error:
                return str(error)
            return ""

        messages = simulate(2, body)
        assert len(set(messages)) == 1
        assert name in messages[0]
        assert str(value) in messages[0]


@pytest.mark.parametrize(
    "model",
    [
        lambda rank: [parameter(*[1.0] * (2 + rank))],
        lambda rank: [parameter(1.0)] * 0 + [parameter(1.0) for _ in range(1 + rank)],
        lambda rank: [parameter(1.0, dtype=(torch.float32, torch.float64)[rank])],
        lambda rank: [{"params": [parameter(1.0)], "lr": 0.1 * (rank + 1)}],
    ],
)
def test_ranks_that_differ_are_told_so(model) -> None:
    def body(comm: Comm) -> bool:
        with pytest.raises(DisagreementError, match=r"ranks have different parameters.*Build the same model") as caught:
            Signum(model(comm.rank), comm=comm)
        return caught.value.everywhere

    assert simulate(2, body) == [True, True]


def test_a_sparse_gradient_is_a_clear_error() -> None:
    def body(comm: Comm) -> None:
        p = parameter(1.0, 2.0)
        optimizer = Signum([p], comm=comm)
        p.grad = torch.ones(2).to_sparse()
        optimizer.step()

    with pytest.raises(ParameterError, match=r"parameter 0 has a sparse gradient.*sparse=False"):
        simulate(1, body)


def test_another_vote_can_be_given_as_a_class() -> None:
    class Opposite(ServerVote):
        def _decide(self, ballot, key):
            super()._decide(ballot, key)
            self.verdict.words[:] = ~self.verdict.words

    assert steps(1, lambda *_: [1.0], lr=1.0, vote=Opposite) == [1.0]


def test_three_ranks_learn_what_labels_mean() -> None:
    def accuracy(comm: Comm) -> float:
        model = small_model()
        optimizer = Signum(model.parameters(), lr=0.003, comm=comm)
        for step in range(300):
            x, y = batch(comm.rank, step)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        x, y = batch(99, 99, size=500)
        return float((model(x).argmax(1) == y).float().mean())

    assert min(simulate(3, accuracy)) > 0.85


def test_the_same_seed_gives_the_same_bits_and_another_one_does_not() -> None:
    def run(seed: int) -> int:
        return simulate(4, lambda comm: fit(comm, Signum, steps=10, seed=seed))[0]

    assert run(0) == run(0) != run(1)


# zeros that abstain


@pytest.mark.parametrize("vote", ["server", "sharded", "tree", "hierarchical"])
def test_a_worker_whose_momentum_is_zero_can_leave_a_coordinate_to_the_others(vote: str) -> None:
    said = {0: [0.0, 0.0, 1.0, 0.0], 1: [-1.0, 0.0, 0.0, -1.0], 2: [0.0, 0.0, -1.0, 1.0]}
    # one against nobody; nobody; a tie; a tie
    ends = steps(3, lambda rank, _: said[rank], lr=0.5, start=(0.0,) * 4, zero="abstain", tie="abstain", vote=vote)
    assert ends == [0.5, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("tie", ["coin", "plus", "abstain"])
def test_abstaining_zeros_equal_the_sign_of_the_sum_of_signs(size: int, tie: str) -> None:
    draws = np.random.default_rng(size).integers(-1, 2, (5, size, 130)).astype(np.float32)

    def body(comm: Comm) -> list[float]:
        p = nn.Parameter(torch.zeros(130))
        optimizer = SignSGD([p], 1.0, zero="abstain", tie=tie, comm=comm)
        for step in range(5):
            p.grad = torch.from_numpy(draws[step, comm.rank].copy())
            optimizer.step()
        return p.tolist()

    sums, x = np.sign(draws).sum(axis=1), np.zeros(130, np.float32)
    for step in range(5):
        negative = reference.majority(np.ones((2, 130)) * [[1], [0]] > 0, tie, stream(coins(), step))[0]
        tied = {"abstain": 0.0, "plus": 1.0}.get(tie, np.where(negative, -1, 1))
        x = x - np.where(sums[step] == 0, tied, np.sign(sums[step])).astype(np.float32)
    assert simulate(size, body) == [x.tolist()] * size


def coins() -> int:
    return seeding.key(0, seeding.SHARED, "ties")


def test_abstaining_zeros_cost_a_second_bit_upwards() -> None:
    plain, both = (
        simulate(2, lambda comm, zero=zero: Signum([parameter(*[0.0] * 640)], zero=zero, comm=comm).bytes_up)[1]
        for zero in ("coin", "abstain")
    )
    assert both == 2 * plain


# trust: layer-wise steps


def test_trust_bounds_the_step_of_a_small_layer() -> None:
    # ‖x‖ = 5, √d = √2: 0.1 · 5 / (√2 + 0.5 · 5)
    bound = 0.1 * 5 / (2**0.5 + 0.5 * 5 + 1e-8)
    moved = steps(2, lambda *_: [1.0, 1.0], lr=10.0, trust=0.1, weight_decay=0.5, start=(3.0, 4.0))
    assert moved == pytest.approx([3 * (1 - 0.5 * bound) - bound, 4 * (1 - 0.5 * bound) - bound], rel=1e-6)  # float32
    assert steps(2, lambda *_: [1.0, 1.0], lr=0.25, trust=1e3, start=(3.0, 4.0)) == [2.75, 3.75]


def test_trust_bounds_each_dtype_alike() -> None:
    def body(comm: Comm) -> list[float]:
        weights = [
            nn.Parameter(torch.tensor([3.0, 4.0], dtype=d)) for d in (torch.float32, torch.float64, torch.float16)
        ]
        optimizer = Signum(weights, lr=10.0, trust=0.1, comm=comm)
        for p in weights:
            p.grad = torch.ones_like(p)
        optimizer.step()
        return [float(p.detach()[0]) for p in weights]

    single, double, half = simulate(2, body)[0]
    assert double == pytest.approx(single, rel=1e-6)
    assert half == pytest.approx(single, rel=1e-3)


@pytest.mark.parametrize("trust", [0.0, -1.0, float("nan"), float("inf"), "much"])
def test_a_trust_that_makes_no_step_is_refused(trust: object) -> None:
    with pytest.raises(ParameterError, match="trust must be a finite number above 0"):
        simulate(1, lambda comm: Signum([parameter(1.0)], trust=trust, comm=comm))


# step option 2


def descent(comm: Comm, option: int, lr: float = 0.3, dtype: torch.dtype = torch.float32) -> list[float]:
    """Minimise Σ over ranks of (x − rank)², and return the objective after each step."""
    p = parameter(4.0, dtype=dtype)
    optimizer = SignSGD([p], lr, option=option, comm=comm)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = ((p - comm.rank) ** 2).sum()
        loss.backward()
        return loss

    losses = []
    for _ in range(30):
        optimizer.step(closure)
        losses.append(sum((float(p.detach()) - rank) ** 2 for rank in range(comm.size)))
    return losses


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_option_2_never_lets_the_objective_grow_and_option_1_does(dtype: torch.dtype) -> None:
    first, second = (simulate(3, lambda comm, option=option: descent(comm, option, dtype=dtype)) for option in (1, 2))
    assert all(after <= before for before, after in zip(second[0], second[0][1:], strict=False))
    assert any(after > before for before, after in zip(first[0], first[0][1:], strict=False))
    assert second[0][-1] <= first[0][-1]
    assert second == [second[0]] * 3


def test_option_2_needs_the_loss() -> None:
    with pytest.raises(ParameterError, match="give step a closure"):
        simulate(1, lambda comm: Signum([parameter(1.0)], option=2, comm=comm).step())
