"""Measured noise against distributions with known answers, theory's bounds, and a network that learns digits."""

import math
from collections.abc import Iterator
from itertools import islice

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from mpisign import noise, seeding, theory
from mpisign.noise import GradientNoise, measure, resample
from mpisign.problems import Rosenbrock
from mpisign.tasks.digits import Digits
from mpisign.tasks.models import mlp

pytestmark = pytest.mark.usefixtures("global_chance_is_untouched")

G = np.array([0.2, -0.5, 1.0, -1.1547, 2.0, -3.0])  # the S of Lemma 1's table, since σ = 1
SAMPLES = 4000
NOISES = {
    "Gauss": stats.norm(),
    "Laplace": stats.laplace(scale=np.sqrt(0.5)),
    "uniform": stats.uniform(-np.sqrt(3), 2 * np.sqrt(3)),
}


class Point(nn.Module):
    """A point x; the gradient of ⟨x, g⟩ is g, whatever g one wants."""

    def __init__(self, numel: int) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.zeros(numel, dtype=torch.float64))


def along(point: Point, gradient: Tensor) -> Tensor:
    return point.x @ gradient


def measured(gradients: np.ndarray, truth: np.ndarray | None = None, **settings: object) -> GradientNoise:
    """The noise of these gradients, float64[n, d]."""
    truths = [] if truth is None else [torch.from_numpy(truth)]
    rows = torch.from_numpy(gradients)
    return measure(Point(gradients.shape[1]), along, rows, len(rows), truths, **settings)


def known(name: str, samples: int = SAMPLES) -> GradientNoise:
    drawn = NOISES[name].rvs(size=(samples, len(G)), random_state=seeding.generator(0, 0, name))
    return measured(G + drawn, G)


@pytest.mark.parametrize("name", NOISES)
def test_known_noise_has_its_mean_deviation_and_success(name: str) -> None:
    seen = known(name)
    np.testing.assert_array_equal(seen.gradient, G)
    # four standard errors of σ: √((κ − 1)/4n), with κ = 6 for Laplace, the largest
    np.testing.assert_allclose(seen.deviation, 1, atol=4 * np.sqrt(5 / 4 / SAMPLES))
    np.testing.assert_allclose(seen.snr, np.abs(G), rtol=0.08)
    exact = NOISES[name].cdf(np.abs(G))
    assert (np.abs(seen.success - exact) <= 4 * seen.success_error).all()


@pytest.mark.parametrize("name", NOISES)
def test_noise_with_one_mode_keeps_lemma_1_and_the_l12_norm(name: str) -> None:
    seen = known(name)
    assert seen.share_below_promise() == 0
    assert theory.l12_norm(seen.gradient, seen.deviation) < seen.rho_norm() < np.abs(G).sum()


def test_the_moments_and_signs_are_those_of_the_samples() -> None:
    drawn = seeding.generator(0, 0, "noise").standard_normal((50, 65)) + 0.1
    seen = measured(drawn)
    np.testing.assert_allclose(seen.gradient, drawn.mean(axis=0), atol=1e-15)  # of 50 additions in another order
    np.testing.assert_allclose(seen.deviation, drawn.std(axis=0, ddof=1), rtol=1e-13)  # as above, relative
    np.testing.assert_array_equal(seen.success, np.mean(np.sign(drawn) == np.sign(drawn.mean(axis=0)), axis=0))
    np.testing.assert_array_equal(seen.samples, drawn.astype(np.float32))
    rows = iter(drawn)
    rho, error = theory.success_probabilities(lambda: next(rows), seen.gradient, 50)
    np.testing.assert_array_equal(seen.success, rho)
    np.testing.assert_allclose(seen.success_error, error, rtol=1e-12)


def test_cantellis_noise_is_wrong_more_often_than_right_and_than_lemma_1_allows() -> None:
    # the gradient is 1: −1 with probability .6, 4 with .4; so S = 1/√6 and Cantelli allows 6/7 to fail
    drawn = seeding.generator(0, 0, "noise").choice([-1.0, 4.0], size=(SAMPLES, 65), p=[0.6, 0.4])
    seen = measured(drawn, np.ones(65))
    assert (np.abs(seen.success - 0.4) < 5 * seen.success_error).all()  # one in 27,000 fails, times 65; seed fixed
    assert (1 - seen.success <= theory.cantelli_bound(seen.snr)).all()
    assert seen.share_below_promise() == 1
    assert seen.share_mostly_right == 0
    assert seen.rho_norm() < seen.rho_norm(M=2) + 1e-12 < 0  # such a step ascends
    assert seen.rho_norm(M=15) < seen.rho_norm()  # and a vote ascends more surely
    assert seen.share_of_several_modes() == 1
    np.testing.assert_allclose(seen.asymmetry(), 2 / np.sqrt(6), rtol=0.15)  # mean 1, median −1, σ = √6


def test_more_voters_descend_by_more_and_an_even_number_by_as_much_as_one_less() -> None:
    seen = known("Gauss")
    norms = [seen.rho_norm(M) for M in (1, 3, 5, 7, 15, 101)]
    assert norms == sorted(norms)
    assert norms[-1] < np.abs(G).sum()
    assert seen.rho_norm(M=2) == seen.rho_norm()
    assert seen.rho_norm(M=8) == seen.rho_norm(M=7)


@pytest.mark.parametrize("name", NOISES)
def test_one_mode_is_told_from_two(name: str) -> None:
    random = seeding.generator(0, 0, name)
    one = measured(NOISES[name].rvs(size=(200, 100), random_state=random))
    two = measured(one.samples.astype(np.float64) + 8 * (random.random((200, 100)) < 0.3))
    assert one.share_of_several_modes() <= 0.12  # 5 % for uniform noise, and three standard errors
    assert two.share_of_several_modes() == 1
    assert np.abs(one.asymmetry().mean()) < 4 * 0.87 / np.sqrt(200 * 100)  # no standard error is above .87/√n
    assert (two.dips() > one.dips()).all()


def test_without_signal_the_samples_own_mean_flatters_them_as_stated() -> None:
    n = 50
    drawn = seeding.generator(0, 0, "noise").standard_normal((n, 10_000))
    excess = 1 / (math.pi * math.sqrt(n))
    # the error of a mean of 50·10⁴ votes is 7e-4; 3 % of the excess is more
    assert measured(drawn).success.mean() - 0.5 == pytest.approx(excess, rel=0.05)
    assert measured(drawn, np.full(10_000, 1e-9)).success.mean() == pytest.approx(0.5, abs=4 * 7e-4)


def test_a_histogram_is_the_samples_in_bins() -> None:
    drawn = seeding.generator(0, 0, "noise").standard_normal((500, 3))
    edges, density = measured(drawn).histogram(1, bins=7)
    assert len(edges) == 8
    assert density @ np.diff(edges) == pytest.approx(1)
    assert (edges[0], edges[-1]) == (np.float32(drawn[:, 1].min()), np.float32(drawn[:, 1].max()))
    counts = [((edges[k] <= drawn[:, 1]) & (drawn[:, 1] < edges[k + 1])).mean() for k in range(6)]
    np.testing.assert_allclose(
        density[:-1] * np.diff(edges)[:-1], counts, atol=1 / 500
    )  # a sample on an edge, by float32


def test_a_coordinate_that_no_sample_uses_counts_nowhere() -> None:
    drawn = np.stack([np.zeros(20), np.linspace(0.5, 1.5, 20)], axis=1)
    seen = measured(drawn)
    assert (seen.snr[0], seen.success[0], seen.promised_success[0]) == (0, 1, 0.5)
    assert seen.used.tolist() == [False, True]
    assert (seen.share_mostly_right, seen.share_above_critical, seen.share_below_promise()) == (1, 1, 0)
    assert seen.rho_norm() == seen.gradient[1]
    unused = measured(np.zeros((5, 2)))
    shares = [unused.share_mostly_right, unused.share_above_critical, unused.share_of_several_modes()]
    assert np.isnan(shares).all()
    assert unused.rho_norm() == 0


def test_a_sample_of_zero_fails_where_there_is_a_gradient() -> None:
    assert measured(np.array([[0.0], [-0.0], [1.0], [1.0]])).success == [0.5]


# ---- a live model ----


class Network(nn.Module):
    """Every kind of state that a measurement might leave a trace in."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 3))
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)
        self.unused = nn.Parameter(torch.ones(2, 3))
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * self.body(x)


def squares(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return ((model(x) - y) ** 2).mean()


@pytest.fixture
def network() -> Network:
    with seeding.torch_seeded(0, 0, "model"):
        return Network()


@pytest.fixture
def table() -> tuple[Tensor, Tensor]:
    random = seeding.torch_generator(0, 0, "data")
    return torch.randn(64, 5, generator=random), torch.randn(64, 3, generator=random)


def test_a_measurement_leaves_no_trace_and_repeats_to_the_bit(network: Network, table: tuple[Tensor, Tensor]) -> None:
    with seeding.torch_seeded(0, 0, "forward"):
        squares(network, *table).backward()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    gradients = [None if p.grad is None else p.grad.clone() for p in network.parameters()]
    first, second = (measure(network, squares, resample(*table, batch_size=8), 5, [table]) for _ in range(2))
    assert all(torch.equal(before[name], tensor) for name, tensor in network.state_dict().items())
    for p, gradient in zip(network.parameters(), gradients, strict=True):
        assert (p.grad is None) == (gradient is None)
        assert gradient is None or torch.equal(p.grad, gradient)
    assert network.training
    np.testing.assert_array_equal(first.samples, second.samples)
    np.testing.assert_array_equal(first.gradient, second.gradient)
    other = measure(network, squares, resample(*table, batch_size=8), 5, seed=1)
    assert (other.samples != first.samples).any()  # other units were dropped


def test_a_shuffling_loader_is_shuffled_by_the_measurements_seed(table: tuple[Tensor, Tensor]) -> None:
    loader = DataLoader(TensorDataset(*table), batch_size=8, shuffle=True)
    with seeding.torch_seeded(0, 0, "model"):
        model = nn.Linear(5, 3)
    first, second, other = (measure(model, squares, loader, 8, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.samples, second.samples)
    assert (first.samples != other.samples).any()
    np.testing.assert_allclose(first.gradient, other.gradient, atol=1e-6)  # the same whole, in other batches of float32


def test_coordinates_bear_the_names_of_their_parameters(network: Network, table: tuple[Tensor, Tensor]) -> None:
    seen = measure(network, squares, resample(*table, batch_size=8), 3)
    numel = sum(p.numel() for p in network.parameters() if p.requires_grad)
    assert len(seen.gradient) == numel
    names = [seen.name(coordinate) for coordinate in range(numel)]
    assert len(set(names)) == numel
    assert names[:2] == ["unused[0, 0]", "unused[0, 1]"]
    assert names[6] == "scale"
    assert names[7 + 5] == "body.0.weight[1, 0]"
    assert names[-1] == "body.3.bias[2]"
    assert not seen.used[:6].any()
    with pytest.raises(ValueError, match="no coordinate -1"):
        seen.name(-1)


def test_the_gradient_is_that_of_backward(table: tuple[Tensor, Tensor]) -> None:
    with seeding.torch_seeded(0, 0, "model"):
        model = nn.Linear(5, 3)
    seen = measure(model, squares, resample(*table, batch_size=8), 3, [table])
    squares(model, *table).backward()
    expected = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
    np.testing.assert_array_equal(seen.gradient, expected.numpy())
    halves = [(table[0][:32], table[1][:32]), (table[0][32:], table[1][32:])]
    mean = measure(model, squares, resample(*table, batch_size=8), 3, halves).gradient
    np.testing.assert_allclose(mean, expected, atol=1e-6)  # float32 sums in another order


def test_only_what_is_asked_for_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = np.arange(30.0).reshape(3, 10)
    seen = measured(drawn, keep=[7, 2, 2])
    assert seen.kept.tolist() == [2, 7]
    assert seen.of(7).tolist() == [7, 17, 27]
    with pytest.raises(ValueError, match=r"coordinate 3 were not kept.*keep=\[3\]"):
        seen.histogram(3)
    monkeypatch.setattr(noise, "KEPT_BYTES", 4 * 3 * 4)
    assert measured(drawn).kept.tolist() == [0, 3, 6, 9]
    assert measured(drawn, keep=[]).samples.shape == (3, 0)


def test_batches_are_drawn_independently_of_each_other() -> None:
    rows = torch.arange(10)
    drawn = [next(resample(rows, -rows, batch_size=1000, seed=seed)) for seed in (0, 0, 1)]
    assert torch.equal(drawn[0][0], -drawn[0][1])
    assert torch.equal(drawn[0][0], drawn[1][0])
    assert not torch.equal(drawn[0][0], drawn[2][0])
    counts = torch.bincount(drawn[0][0], minlength=10)
    assert ((counts - 100).abs() < 4 * math.sqrt(90)).all()  # four standard deviations


# ---- digits ----


@pytest.fixture(scope="module")
def digits() -> tuple[nn.Module, Tensor, Tensor]:
    """A network with one hidden layer, and the data, before any training."""
    data = Digits().read(None)
    with seeding.torch_seeded(0, seeding.SHARED, "model"):
        model = mlp((1, 8, 8), 10)
    return model, torch.from_numpy(data.x_train), torch.from_numpy(data.y_train)


def seen_by(digits: tuple[nn.Module, Tensor, Tensor], batch_size: int, samples: int = 200) -> GradientNoise:
    model, x, y = digits
    return measure(model, Digits().loss, resample(x, y, batch_size=batch_size), samples, [(x, y)])


def test_larger_batches_of_digits_are_right_more_often_with_less_noise(
    digits: tuple[nn.Module, Tensor, Tensor],
) -> None:
    small, large = seen_by(digits, 4), seen_by(digits, 64)
    np.testing.assert_allclose(small.gradient, large.gradient)
    used = small.used
    # 16 times the batch: a quarter of σ
    assert np.median(small.deviation[used] / large.deviation[used]) == pytest.approx(4, rel=0.05)
    assert small.rho_norm() < large.rho_norm() < np.abs(large.gradient).sum()
    assert small.share_mostly_right < large.share_mostly_right
    assert small.share_above_critical < large.share_above_critical


def test_a_vote_on_digits_descends_by_more_than_one_worker(digits: tuple[nn.Module, Tensor, Tensor]) -> None:
    seen = seen_by(digits, 16, samples=60)
    norms = [seen.rho_norm(M) for M in (1, 3, 7, 15)]
    assert norms == sorted(norms)
    assert seen.rho_norm(M=15) > 1.5 * seen.rho_norm()


def test_small_batches_of_digits_break_what_lemma_1_assumes_and_large_ones_hardly(
    digits: tuple[nn.Module, Tensor, Tensor],
) -> None:
    # a border pixel that few images use: mostly nothing, seldom much. Signs are right for most weights all the same
    small, large = seen_by(digits, 1), seen_by(digits, 256, samples=100)
    assert small.share_below_promise() > 0.2 > 0.02 > large.share_below_promise()
    assert large.share_mostly_right > 0.9


def test_while_digits_are_learnt_signal_to_noise_falls_below_its_critical_value() -> None:
    # paper 1's figure 3 in small: an epoch is 45 batches of 32
    data, task = Digits().read(None), Digits()
    x, y = torch.from_numpy(data.x_train), torch.from_numpy(data.y_train)
    with seeding.torch_seeded(0, seeding.SHARED, "model"):
        model = mlp((1, 8, 8), 10)
    before = seen_by((model, x, y), 32, samples=100)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for images, labels in islice(resample(x, y, batch_size=32, seed=1), 225):
        optimizer.zero_grad()
        task.loss(model, images, labels).backward()
        optimizer.step()
    after = seen_by((model, x, y), 32, samples=100)
    assert before.share_above_critical > 0.1 > 0.01 > after.share_above_critical
    assert before.rho_norm() > 5 * after.rho_norm()
    assert before.share_mostly_right > after.share_mostly_right > 0.5


# ---- Rosenbrock's function, paper 3 ----


def rosenbrock(batch: int, x: np.ndarray, samples: int = 500) -> GradientNoise:
    problem = Rosenbrock(numel=10, batch=batch)
    random = seeding.generator(0, 0, "noise")

    def draws() -> Iterator[Tensor]:
        while True:
            yield torch.from_numpy(problem.stochastic_gradient(x, random))

    return measure(Point(10), along, draws(), samples, [torch.from_numpy(problem.gradient(x))])


def test_batches_of_rosenbrock_make_all_signs_mostly_right() -> None:
    # a coordinate is in two summands of nine: a batch of one misses it in 7 draws of 9
    shares = [rosenbrock(batch, Rosenbrock().start).share_mostly_right for batch in (1, 4, 16, 256)]
    assert shares[0] == 0
    assert shares == sorted(shares)
    assert shares[-1] == 1


def test_signs_of_rosenbrock_are_less_often_right_near_its_valley() -> None:
    problem = Rosenbrock()
    far = rosenbrock(16, problem.start)
    x = problem.start
    for step in range(2000):
        x = x - 0.05 / np.sqrt(step + 1) * np.sign(problem.gradient(x))
    near = rosenbrock(16, x)
    assert problem.value(x) < problem.value(problem.start) / 10
    assert near.success.mean() < far.success.mean()


# ---- mistakes ----


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"samples": 1}, "samples must be 2 or more"),
        ({"samples": 6}, "batches ended after 5"),
        ({"keep": [2]}, "wanted coordinates from 0 to 1"),
    ],
)
def test_wrong_settings_are_refused(settings: dict, words: str) -> None:
    rows = torch.zeros(5, 2, dtype=torch.float64)
    with pytest.raises(ValueError, match=words):
        measure(Point(2), along, rows, **({"samples": 5} | settings))


def test_a_gradient_that_is_not_finite_is_named() -> None:
    rows = torch.zeros(5, 2, dtype=torch.float64)
    rows[3, 1] = math.nan
    with pytest.raises(ValueError, match="gradient of batch 3 is not finite"):
        measure(Point(2), along, rows, 5)


def test_a_model_without_parameters_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing to measure"):
        measure(nn.Flatten(), along, [], 5)


@pytest.mark.parametrize("lengths, size", [((3, 4), 2), ((0,), 2), ((3,), 0)])
def test_what_can_not_be_resampled_is_refused(lengths: tuple[int, ...], size: int) -> None:
    with pytest.raises(ValueError, match="equally many rows"):
        resample(*map(torch.zeros, lengths), batch_size=size)
