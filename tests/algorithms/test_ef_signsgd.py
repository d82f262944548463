import numpy as np
import pytest
import torch
from protocols import batch, fit, small_model
from torch import nn

from mpisign import checksum, reference, simulate
from mpisign.algorithms.ef_signsgd import EFSignSGD
from mpisign.collectives.scaled_sign_mean import ScaledSignMean
from mpisign.comm import Comm
from mpisign.kernels import Layout

pytestmark = pytest.mark.usefixtures("global_chance_is_untouched")

NUMELS = [200, 1, 65]


def draws(size: int, count: int) -> np.ndarray:
    """float32[count, size, 266], zeros among them."""
    gradients = np.random.default_rng(size).standard_normal((count, size, sum(NUMELS))).astype(np.float32)
    gradients[:, :, ::7] = 0
    return gradients


def parts(flat: np.ndarray) -> list[torch.Tensor]:
    return [torch.from_numpy(part.copy()) for part in np.split(flat, np.cumsum(NUMELS)[:-1])]


def descend(size: int, gradients: np.ndarray, rates: list[float], **settings) -> tuple[np.ndarray, np.ndarray]:
    """Step from 0 with gradients[step, rank] and a learning rate for each step; return x, and e of each rank."""

    def body(comm: Comm) -> tuple[np.ndarray, np.ndarray]:
        parameters = [nn.Parameter(torch.zeros(n)) for n in NUMELS]
        optimizer = EFSignSGD(parameters, comm=comm, **settings)
        for step, rate in enumerate(rates):
            optimizer.param_groups[0]["lr"] = rate
            for p, part in zip(parameters, parts(gradients[step, comm.rank]), strict=True):
                p.grad = part
            optimizer.step()
        residual = torch.cat([optimizer.state[p]["residual"] for p in parameters])
        return torch.cat(parameters).detach().numpy(), residual.numpy()

    ends = simulate(size, body)
    assert all(np.array_equal(x, ends[0][0]) for x, _ in ends)
    return ends[0][0], np.array([e for _, e in ends])


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
def test_twenty_steps_equal_the_reference_bit_for_bit(size: int) -> None:
    gradients, lr, decay = draws(size, 20), 0.1, 0.2
    edges = np.cumsum(NUMELS)[:-1]
    x, errors = np.zeros(sum(NUMELS), np.float32), np.zeros((size, sum(NUMELS)), np.float32)
    for step in range(20):
        moved = reference.momentum(errors, gradients[step], 1.0, lr)
        means, errors = [], moved.copy()
        for p, part in enumerate(np.split(moved, edges, axis=1)):
            negative = reference.negatives(part)
            scales = np.array([reference.power_sum(row, 1) / NUMELS[p] for row in part]).astype(np.float32)
            means.append(reference.scaled_sign_mean(negative, scales))
            np.split(errors, edges, axis=1)[p][:] = part - np.where(negative, -scales[:, None], scales[:, None])
        x = reference.move(x, np.concatenate(means), 1.0, 1 - lr * decay)
    end, residual = descend(size, gradients, [lr] * 20, weight_decay=decay)
    assert end.tobytes() == x.tobytes()
    assert residual.tobytes() == errors.tobytes()


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_outputs_and_residuals_add_up_to_the_inputs_also_when_the_learning_rate_changes(size: int) -> None:
    rates = [0.1] * 50 + [0.001] * 50 + [0.03] * 50
    gradients = draws(size, len(rates))
    x, residual = descend(size, gradients, rates)
    inputs = np.einsum("s,snd->nd", np.array(rates), gradients.astype(np.float64))
    # 450 roundings of float32 on numbers below 8, growing as a random walk at worst to 450·2⁻²²
    assert np.abs(-x + residual.mean(axis=0) - inputs.mean(axis=0)).max() < 450 * 2.0**-22
    assert np.abs(residual).max() > 1e-3  # something was owed


def test_a_residual_is_paid_in_full_after_the_learning_rate_falls_to_nothing() -> None:
    gradients = draws(1, 400)
    x, residual = descend(1, gradients, [0.1] * 10 + [0.0] * 390)
    inputs = 0.1 * gradients[:10, 0].astype(np.float64).sum(axis=0)
    assert np.abs(residual).mean() < 0.1 * np.abs(inputs + x).mean() + 0.1 * np.abs(inputs).mean()
    assert np.abs(-x - inputs).mean() < 0.1 * np.abs(inputs).mean()  # a residual in units of gradients would be lost


@pytest.mark.parametrize("size", [2, 3, 4, 7])
def test_equal_workers_equal_one_worker_exactly(size: int) -> None:
    one = draws(1, 30)
    x, residual = descend(1, one, [0.1] * 30)
    many, residuals = descend(size, np.repeat(one, size, axis=1), [0.1] * 30)
    assert many.tobytes() == x.tobytes()
    assert residuals.tobytes() == residual.tobytes() * size


def test_padding_does_not_enter_the_scale() -> None:
    def body(comm: Comm) -> list[float]:
        p = nn.Parameter(torch.zeros(1))
        optimizer = EFSignSGD([p], lr=0.5, comm=comm)
        p.grad = torch.tensor([3.0])
        optimizer.step()
        return [p.item(), optimizer.state[p]["residual"].item()]

    assert simulate(3, body) == [[-1.5, 0.0]] * 3


def test_a_coordinate_without_gradient_does_not_drift() -> None:
    gradients = np.abs(draws(3, 300))
    gradients[:, :, 5] = 0
    x, _ = descend(3, gradients, [0.1] * 300)
    assert abs(x[5]) < 0.5  # one step is 0.07; plain signs would take it to 21


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 3e38])
def test_a_bad_gradient_changes_no_residual_and_harms_nobody(bad: float) -> None:
    def body(comm: Comm) -> tuple[list[float], list[int], list[bool], list[float]]:
        p = nn.Parameter(torch.zeros(2))
        optimizer = EFSignSGD([p], lr=2.0, comm=comm)
        voters, finite, owed = [], [], []
        for step in range(3):
            p.grad = torch.tensor([bad if comm.rank == 1 and step == 1 else 1.0, 0.5])
            optimizer.step()
            voters.append(optimizer.report.voters)
            finite.append(optimizer.report.finite)
            owed.append(optimizer.state[p]["residual"][0].item())
        return p.tolist(), voters, finite, owed

    with pytest.warns(RuntimeWarning, match="rank 1: the gradient of step 1"):
        ends = simulate(3, body)
    assert [end[1] for end in ends] == [[3, 2, 3]] * 3
    assert [end[2] for end in ends] == [[True, True, True], [True, False, True], [True, True, True]]
    assert ends[1][3][0] == ends[1][3][1]
    assert all(np.isfinite(end[0]).all() and end[0] == ends[0][0] for end in ends)


def test_a_worker_without_a_gradient_keeps_what_it_owes() -> None:
    def body(comm: Comm) -> tuple[bool, float]:
        p = nn.Parameter(torch.zeros(2))
        optimizer = EFSignSGD([p], lr=1.0, comm=comm)
        p.grad = torch.tensor([3.0, 1.0])
        optimizer.step()
        before = optimizer.state[p]["residual"].clone()
        p.grad = None if comm.rank else torch.zeros(2)
        optimizer.step()
        return torch.equal(before, optimizer.state[p]["residual"]), p[0].item()

    # rank 0 alone votes: it sends ±1, what it owes, and is even
    assert simulate(2, body) == [(False, -3.0), (True, -3.0)]


def test_it_solves_what_plain_signs_cannot() -> None:
    slopes = torch.tensor([[1.5, -0.5], [-0.5, 1.5]])

    def body(comm: Comm) -> float:
        p = nn.Parameter(torch.tensor([1.5, 0.5]))
        optimizer = EFSignSGD([p], lr=0.05, comm=comm)
        for _ in range(400):
            p.grad = 2 * (slopes[comm.rank] @ p.detach()) * slopes[comm.rank]
            optimizer.step()
        return float(p.detach().abs().max())

    assert max(simulate(2, body)) < 1e-6  # exact gradients that vanish at the optimum: linear convergence


@pytest.mark.parametrize("size", [2, 3, 7])
def test_a_bit_up_with_a_scale_for_each_parameter_and_floats_down(size: int) -> None:
    def body(comm: Comm) -> tuple[int, int, int]:
        parameters = [nn.Parameter(torch.zeros(n)) for n in (64_000, 1, 70)]
        optimizer = EFSignSGD(parameters, comm=comm)
        sent, received = comm.traffic.sent, comm.traffic.received
        optimizer.step()
        return comm.traffic.sent - sent, comm.traffic.received - received, optimizer.bytes_up

    up, down = 8 * (1 + 1000 + 1 + 2) + 8 * 2, 4 * (64_071 + 3 + 1)
    assert simulate(size, body) == [((size - 1) * down, (size - 1) * up, up)] + [(up, down, up)] * (size - 1)


def test_scales_are_one_or_one_for_each_parameter() -> None:
    def body(comm: Comm) -> None:
        with pytest.raises(ValueError, match="scales must be 1 or the number of parameters, 3; got 2"):
            ScaledSignMean(comm, Layout([1, 2, 3]), 2)

    simulate(1, body)


def test_a_resumed_run_owes_the_same(tmp_path) -> None:
    def body(comm: Comm, stop: int) -> int:
        model = small_model()
        optimizer = EFSignSGD(model.parameters(), comm=comm)
        for step in range(6):
            if step == stop:
                torch.save(optimizer.state_dict(), tmp_path / f"{comm.rank}.pt")
                optimizer = EFSignSGD(model.parameters(), lr=9.0, comm=comm)
                optimizer.load_state_dict(torch.load(tmp_path / f"{comm.rank}.pt", weights_only=True))
            x, y = batch(comm.rank, step)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        return checksum(model.parameters())

    assert simulate(2, body, 3) == simulate(2, body, -1)


def test_runs_repeat_to_the_bit() -> None:
    assert len({simulate(4, lambda comm: fit(comm, EFSignSGD, steps=10))[0] for _ in range(3)}) == 1


def test_three_ranks_learn_what_labels_mean() -> None:
    def accuracy(comm: Comm) -> float:
        model = small_model()
        optimizer = EFSignSGD(model.parameters(), comm=comm)
        for step in range(300):
            x, y = batch(comm.rank, step)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        x, y = batch(99, 99, size=500)
        return float((model(x).argmax(1) == y).float().mean())

    assert min(simulate(3, accuracy)) > 0.85
