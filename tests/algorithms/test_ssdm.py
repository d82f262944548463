from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from protocols import batch, fit, small_model
from torch import Tensor, nn

from mpisign import SignSGD, reference, seeding, simulate, testing
from mpisign.algorithms.ssdm import SSDM
from mpisign.collectives.sign_sum import SignSum
from mpisign.comm import Comm
from mpisign.errors import DisagreementError, ParameterError
from mpisign.kernels import Layout, stream

pytestmark = pytest.mark.usefixtures("global_chance_is_untouched")


def steps(size: int, gradients, count: int = 1, start=(0.0,), **settings) -> tuple[list[float], int]:
    """Take `count` steps from `start` with gradients(rank, step); return where all ranks end, and the last voters."""

    def body(comm: Comm) -> tuple[list[float], int]:
        p = nn.Parameter(torch.tensor(start))
        optimizer = SSDM([p], comm=comm, **settings)
        for step in range(count):
            gradient = gradients(comm.rank, step)
            p.grad = None if gradient is None else torch.tensor(gradient)
            optimizer.step()
        return p.tolist(), optimizer.report.voters

    ends = simulate(size, body)
    assert all(end == ends[0] for end in ends)
    return ends[0]


def tail_mean(size: int, gradient: Callable[[int, Tensor], Tensor], start: list[float], count: int, kind, **settings):
    """The mean of the second half of `count` iterates with the exact gradients of each rank."""

    def body(comm: Comm) -> list[float]:
        p = nn.Parameter(torch.tensor(start))
        optimizer = kind([p], comm=comm, **settings)
        total = torch.zeros(len(start), dtype=torch.float64)
        for step in range(count):
            p.grad = gradient(comm.rank, p.detach())
            optimizer.step()
            total += p.detach() * (step >= count // 2)
        return (total / (count - count // 2)).tolist()

    return simulate(size, body)[0]


def theorem(count: int) -> dict[str, float]:
    """The theorem's step and momentum for `count` steps."""
    return {"lr": count**-0.75, "momentum": 1 - count**-0.5}


@pytest.mark.parametrize("norm", ["none", "carry"])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
def test_twenty_steps_equal_the_reference_bit_for_bit(size: int, norm: str) -> None:
    numels, lr, beta, decay = [200, 1, 65], 0.01, 0.9, 0.1
    edges = np.cumsum(numels)[:-1]
    draws = np.random.default_rng(size).standard_normal((20, size, sum(numels))).astype(np.float32)
    draws[:, :, ::7] = 0
    start = np.random.default_rng(1).standard_normal(sum(numels)).astype(np.float32)

    def body(comm: Comm) -> bytes:
        parameters = [nn.Parameter(torch.from_numpy(part.copy())) for part in np.split(start, edges)]
        optimizer = SSDM(parameters, lr, beta, decay, norm=norm, seed=3, comm=comm)
        for step in range(20):
            for p, part in zip(parameters, np.split(draws[step, comm.rank], edges), strict=True):
                p.grad = torch.from_numpy(part.copy())
            optimizer.step()
        return torch.cat(parameters).detach().numpy().tobytes()

    x, velocity, starts = np.split(start, edges), draws[0], Layout(numels).starts.tolist()
    for step in range(20):
        velocity = reference.momentum(velocity, draws[step], beta, 1 - beta) if step else velocity
        vectors = [np.split(v, edges) for v in velocity]
        norms = np.array([reference.l2_norm(vector) for vector in vectors])
        keys = [stream(seeding.key(3, rank, "stochastic signs"), step) for rank in range(size)]
        for p, first in enumerate(starts):
            negative = np.array(
                [
                    reference.stochastic_negatives(vector[p], own, key, first)
                    for vector, own, key in zip(vectors, norms, keys, strict=True)
                ]
            )
            if norm == "carry":
                x[p] = reference.move(x[p], reference.scaled_sign_mean(negative, norms), lr, 1 - lr * decay)
            else:
                x[p] = reference.move(x[p], reference.sign_sum(negative), lr / size, 1 - lr * decay)
    assert simulate(size, body) == [np.concatenate(x).tobytes()] * size


def test_the_step_is_the_mean_of_the_signs() -> None:
    # in one dimension |m| is the norm, and the stochastic sign is the sign
    assert steps(3, lambda rank, _: [1.0 if rank else -5.0], lr=0.75) == ([-0.25], 3)
    assert steps(4, lambda rank, _: [1.0 if rank else -5.0], lr=0.5) == ([-0.25], 4)
    assert steps(3, lambda rank, _: None if rank == 2 else [1.0], lr=0.5) == ([-0.5], 2)


def test_a_carried_norm_makes_it_the_mean_of_the_momenta() -> None:
    assert steps(3, lambda rank, _: [1.0 if rank else -5.0], lr=0.5, norm="carry") == ([0.5], 3)


def test_momentum_begins_with_the_first_gradient() -> None:
    # m = 0.9·1 − 0.1·1.5 > 0; begun with 0 it would be 0.9·0.1 − 0.1·1.5 < 0
    assert steps(1, lambda _, step: [1.0, -1.5][step : step + 1], count=2, lr=1.0)[0] == [-2.0]


def test_momentum_begins_with_the_first_gradient_that_is_finite() -> None:
    with pytest.warns(RuntimeWarning, match="step 0 is not finite"):
        end = steps(1, lambda _, step: [[9.0, float("nan")], [0.0, 1.0], [0.0, -1.5]][step], 3, (0.0, 0.0), lr=1.0)
    assert end[0][1] == -2.0  # the norm is that of the second coordinate alone: its sign is certain


def test_momentum_outlives_a_step_and_none_forgets() -> None:
    turn = [[1.0], [-0.5]]
    assert steps(1, lambda _, step: turn[step], 2, lr=1.0, momentum=0.9)[0] == [-2.0]
    assert steps(1, lambda _, step: turn[step], 2, lr=1.0, momentum=0.0)[0] == [0.0]


def test_weight_decay_is_decoupled() -> None:
    assert steps(1, lambda *_: [-1.0], start=(4.0,), lr=0.5, weight_decay=1.0)[0] == [2.5]


def test_a_worker_whose_momentum_is_zero_abstains_and_with_its_norm_counts_as_zero() -> None:
    assert steps(3, lambda rank, _: [float(rank)], lr=0.5) == ([-0.5], 2)
    assert steps(2, lambda rank, _: [float(rank)], lr=0.5, norm="carry") == ([-0.25], 2)
    assert steps(2, lambda *_: [0.0], start=(1.0,), lr=0.5, weight_decay=0.5) == ([1.0], 0)


@pytest.mark.parametrize("norm", ["none", "carry"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_bad_gradient_on_one_worker_harms_nobody(bad: float, norm: str) -> None:
    with pytest.warns(RuntimeWarning, match="rank 1: the gradient of step 0"):
        end = steps(3, lambda rank, step: [bad if rank == 1 and step < 2 else 1.0], 3, lr=1.0, norm=norm)
    assert end == ([-3.0], 3)


def test_the_norm_is_that_of_all_parameters_together() -> None:
    def body(comm: Comm) -> list[float]:
        parameters = [nn.Parameter(torch.zeros(1)) for _ in range(400)]
        optimizer = SSDM(parameters, lr=1.0, comm=comm)
        for p in parameters:
            p.grad = torch.ones(1)
        optimizer.step()
        return torch.cat(parameters).tolist()

    (end,) = simulate(1, body)
    # each + has probability ½ + ½/20; with a norm for each parameter it would be certain
    assert abs(np.mean(end) + 1 / 20) < 4 / np.sqrt(400)  # four standard deviations


@pytest.mark.parametrize("norm", ["none", "carry"])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_even_and_odd_numbers_of_workers_step_alike_on_average(size: int, norm: str) -> None:
    gradient, count = np.array([3.0, -1.0, 0.0, 2.0], np.float32), 1500
    end, _ = steps(size, lambda *_: gradient.tolist(), count, (0.0,) * 4, lr=1.0, norm=norm)
    scale = np.linalg.norm(gradient)
    mean = -np.array(end) / count * (1 if norm == "carry" else scale)
    # four standard errors of count·size values ±‖g‖ with mean g, and the rounding of float32
    deviation = 4 * np.sqrt((scale**2 - gradient**2) / (count * size)) + 1e-4 * scale
    assert (np.abs(mean - gradient) < deviation).all()


def test_the_sum_of_signs_of_many_workers_with_absences() -> None:
    numels, size = [65, 0, 1, 130], 7

    def body(comm: Comm) -> list[tuple[list[list[float]], list[int], int]]:
        layout = Layout(numels)
        signs = SignSum(comm, layout)
        ballot = torch.zeros(layout.message, dtype=torch.uint64)
        results = []
        for step in range(3):
            present = [comm.rank > 2, True, comm.rank + step == 1, False]
            layout.write_presence(np.array(present) & (comm.rank != 6), ballot.numpy()[: layout.header])
            ballot.numpy()[layout.header :] = 2**64 - 1 if comm.rank % 2 else 0
            sums = signs(ballot)
            results.append(
                ([[] if s is None else s.unique().tolist() for s in sums], signs.counts.tolist(), signs.voters)
            )
            assert [s is None for s in sums] == [False, False, step > 1, True]
        return results

    expected = [([[-1], [], [-1], []], [3, 6, 1, 0], 6), ([[-1], [], [1], []], [3, 6, 1, 0], 6)]
    assert simulate(size, body) == [[*expected, ([[-1], [], [], []], [3, 6, 0, 0], 6)]] * size


@pytest.mark.parametrize("size", [2, 3, 4, 7, 16])
def test_a_bit_up_and_the_bits_of_a_count_down(size: int) -> None:
    def body(comm: Comm, norm: str) -> tuple[int, int, int]:
        p = nn.Parameter(torch.zeros(64_000))
        optimizer = SSDM([p], norm=norm, comm=comm)
        sent, received = comm.traffic.sent, comm.traffic.received
        p.grad = torch.ones(64_000)
        optimizer.step()
        return comm.traffic.sent - sent, comm.traffic.received - received, optimizer.bytes_up

    up, down = 8 * 1001, 8 * (int(np.ceil(np.log2(size + 1))) * 1001 + 1)
    assert simulate(size, body, "none") == [((size - 1) * down, (size - 1) * up, up)] + [(up, down, up)] * (size - 1)
    down = 4 * (64_000 + 2)
    up += 8
    assert simulate(size, body, "carry") == [((size - 1) * down, (size - 1) * up, up)] + [(up, down, up)] * (size - 1)


def test_the_contract_holds_with_a_carried_norm() -> None:
    testing.check_algorithm(partial(SSDM, norm="carry"), ranks=(1, 3))


def test_a_ballot_of_two_hundred_tiny_tensors_is_one_message() -> None:
    def body(comm: Comm, numels: list[int]) -> int:
        parameters = [nn.Parameter(torch.zeros(n)) for n in numels]
        optimizer = SSDM(parameters, comm=comm)
        before = comm.traffic.messages
        optimizer.step()
        return comm.traffic.messages - before

    assert simulate(3, body, [10] * 200) == simulate(3, body, [2000])


@pytest.mark.parametrize("norm", ["none", "carry"])
def test_the_same_seed_gives_the_same_bits_and_another_one_does_not(norm: str) -> None:
    def run(seed: int) -> int:
        return simulate(4, lambda comm: fit(comm, SSDM, steps=10, seed=seed, norm=norm))[0]

    assert run(0) == run(0) == run(0) != run(1)


def test_workers_draw_signs_of_their_own() -> None:
    end, _ = steps(2, lambda *_: [1.0] * 4096, start=(0.0,) * 4096, lr=1.0)
    assert abs(end.count(0.0) / 4096 - 0.5) < 4 * 0.5 / 64  # with one stream for both no signs would cancel


@pytest.mark.parametrize("settings, words", [({"norm": "layer"}, "norm='layer'"), ({"momentum": 1.0}, "momentum")])
def test_a_bad_hyperparameter_is_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        steps(2, lambda *_: [1.0], **settings)


def test_ranks_with_different_norms_are_told_so() -> None:
    def body(comm: Comm) -> None:
        with pytest.raises(DisagreementError):
            SSDM([nn.Parameter(torch.zeros(1))], norm="carry" if comm.rank else "none", comm=comm)

    simulate(2, body)


def test_a_state_of_the_other_norm_is_refused() -> None:
    def body(comm: Comm) -> None:
        parameters = [nn.Parameter(torch.zeros(1))]
        state = SSDM(parameters, norm="carry", comm=comm).state_dict()
        with pytest.raises(ParameterError, match="carry"):
            SSDM(parameters, comm=comm).load_state_dict(state)

    simulate(1, body)


def test_three_ranks_learn_what_labels_mean() -> None:
    def accuracy(comm: Comm) -> float:
        model = small_model()
        optimizer = SSDM(model.parameters(), lr=0.02, comm=comm)
        for step in range(300):
            x, y = batch(comm.rank, step)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        x, y = batch(99, 99, size=500)
        return float((model(x).argmax(1) == y).float().mean())

    assert min(simulate(3, accuracy)) > 0.85


# two workers of f = ⟨a_1, x⟩² + ⟨a_2, x⟩², ε = ½: their gradients' signs are ±(1, −1), so x₁ + x₂ never changes
SLOPES = torch.tensor([[1.5, -0.5], [-0.5, 1.5]])


def slope(rank: int, x: Tensor) -> Tensor:
    return 2 * (SLOPES[rank] @ x) * SLOPES[rank]


def test_sign_sgd_conserves_the_sum_in_the_counter_example() -> None:
    # steps of 1/128 from there meet no gradient of exactly 0, whose vote would be a coin
    end = tail_mean(2, slope, [1.75 + 1 / 256, 0.25 - 1 / 256], 500, SignSGD, lr=1 / 128, tie="abstain")
    assert sum(end) == 2.0
    assert end[0] < 1.51  # it did move, until the votes tied


@pytest.mark.parametrize("count", [2000, pytest.param(6000, marks=pytest.mark.slow)])
def test_ssdm_solves_the_counter_example(count: int) -> None:
    end = tail_mean(2, slope, [1.5, 0.5], count, SSDM, **theorem(count))
    # steps are of size γ with drift −γ·∇f/‖∇f‖: near 0 the iterates are within some γ, their mean well within
    assert np.abs(end).max() < 4 * count**-0.75


# f_n = ½‖x − c_n‖²
CENTRES = torch.tensor([[0.0, 0.0], [0.0, 0.1], [3.0, 0.0]])


@pytest.mark.parametrize("count", [2000, pytest.param(6000, marks=pytest.mark.slow)])
def test_under_different_data_it_goes_to_the_geometric_median(count: int) -> None:
    end = tail_mean(3, lambda rank, x: x - CENTRES[rank], [0.0, 0.0], count, SSDM, **theorem(count))
    # four standard errors: noise 1/√3 a step, count/2 steps, over the curvature there: 18·(1 ± ½)/3, at least 3
    assert end == pytest.approx([0.0288, 0.0481], abs=4 * (3 * count / 2) ** -0.5 / 3)


@pytest.mark.parametrize("count", [2000, pytest.param(6000, marks=pytest.mark.slow)])
def test_with_carried_norms_it_goes_to_the_mean(count: int) -> None:
    settings = theorem(count) | {"lr": 3 * count**-0.75, "norm": "carry"}
    end = tail_mean(3, lambda rank, x: x - CENTRES[rank], [0.0, 0.0], count, SSDM, **settings)
    # four standard errors: noise √Σ‖m_n‖²/3 = √6/3 a step, curvature 1; and what is left of the way: e^(−γ·count/2)
    noise = 4 * np.sqrt(6) / 3 * (count / 2) ** -0.5
    assert end == pytest.approx([1.0, 1 / 30], abs=noise + np.exp(-settings["lr"] * count / 2))
