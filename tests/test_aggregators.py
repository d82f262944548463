import numpy as np
import pytest
import torch

from mpisign import aggregators
from mpisign.errors import ConfigError, ParameterError, QuorumError


def honest(count: int, numel: int = 200) -> torch.Tensor:
    return 1 + 0.1 * torch.randn(count, numel, generator=torch.Generator().manual_seed(count))


def test_the_mean_is_added_in_rank_order() -> None:
    rows = torch.tensor([[1e8], [1.0], [-1e8], [1.0]])
    assert aggregators.mean(rows).item() == 0.25  # 1e8 + 1 is 1e8 in float32


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 8])
def test_the_median_is_numpys(n: int) -> None:
    rows = honest(n)
    assert np.array_equal(aggregators.median(rows).numpy(), np.median(rows.numpy(), axis=0))


def test_the_median_of_huge_numbers_is_finite() -> None:
    assert aggregators.median(torch.full((2, 1), 3e38)).item() == np.float32(3e38)


@pytest.mark.parametrize("lie", [1e30, -1e30, 0.0])
def test_three_liars_of_seven_leave_the_median_within_the_honest_values(lie: float) -> None:
    rows = torch.cat([torch.full((3, 200), lie), honest(4)])
    result = aggregators.median(rows)
    assert (result >= rows[3:].amin(0)).all()
    assert (result <= rows[3:].amax(0)).all()


def test_four_liars_of_seven_own_the_median() -> None:
    rows = torch.cat([torch.full((4, 200), 1e30), honest(3)])
    assert (aggregators.median(rows) == 1e30).all()


@pytest.mark.parametrize(
    "share, n, cut", [(0, 5, 0), (0.2, 5, 1), (0.2, 4, 0), (0.29, 100, 29), (0.49, 7, 3), (0.3, 10, 3)]
)
def test_a_trimmed_mean_leaves_out_as_many_as_was_typed_on_each_side(share: float, n: int, cut: int) -> None:
    rows = torch.arange(n, dtype=torch.float32).flip(0).square().view(n, 1)
    kept = sorted(rows.view(-1).tolist())[cut : n - cut]
    assert aggregators.trimmed_mean(rows, share).item() == pytest.approx(sum(kept) / len(kept), rel=1e-6)  # float32


@pytest.mark.parametrize("share", [-0.1, 0.5, "x", True])
def test_other_shares_are_refused(share: object) -> None:
    with pytest.raises(ParameterError, match="share of at least 0 and below"):
        aggregators.trimmed_mean(torch.zeros(5, 1), share)


def test_krum_squares_its_distances() -> None:
    rows = torch.tensor([[0.0], [0.0], [10.0], [16.0], [16.0]])  # f = 1: two neighbours each, four are kept
    near = np.sort(aggregators.squared_distances(rows), axis=1)[:, 1:3]
    assert near.sum(axis=1).tolist() == [100, 100, 72, 36, 36]
    assert np.sqrt(near).sum(axis=1).tolist() == [10, 10, 12, 6, 6]
    assert aggregators.krum(rows, 1).item() == 42 / 4  # the second of equals goes; unsquared, the third would: 32 / 4


@pytest.mark.parametrize("n, liars", [(7, 2), (9, 3), (5, 1), (8, 2), (3, 0)])
def test_krum_picks_honest_vectors(n: int, liars: int) -> None:
    for lie in (-1.0, 1e20, 3e38):
        rows = torch.cat([torch.full((liars, 200), lie), honest(n - liars)])
        assert torch.equal(aggregators.krum(rows, liars), aggregators.mean(rows[liars:]))


def test_the_choice_of_krum_does_not_change_the_rows() -> None:
    rows = honest(7)
    before = rows.clone()
    aggregators.krum(rows, 2)
    assert torch.equal(rows, before)  # the paper's code adds up in the first chosen gradient


@pytest.mark.parametrize("n, liars", [(6, 2), (1, 0), (2, 0), (4, 1)])
def test_krum_says_how_many_workers_it_needs(n: int, liars: int) -> None:
    with pytest.raises(QuorumError, match=rf"krum:{liars} needs at least {2 * liars + 3} workers \(2f \+ 3\), got {n}"):
        aggregators.krum(honest(n), liars)


@pytest.mark.parametrize("liars", [-1, 1.5, "two", True])
def test_krum_counts_liars_in_whole_numbers(liars: object) -> None:
    with pytest.raises(ParameterError, match="whole number of liars"):
        aggregators.krum(honest(7), liars)


def test_an_aggregator_of_ones_own_is_a_name_in_a_file_or_a_function(tmp_path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def biggest(rows, times=1):\n    return times * rows.amax(0)\n")
    rows = honest(3)
    assert torch.equal(aggregators.build(f"{file}:biggest")(rows), rows.amax(0))
    assert torch.equal(aggregators.build(f"{file}:biggest:2")(rows), 2 * rows.amax(0))
    assert torch.equal(aggregators.build(aggregators.median)(rows), rows.median(0).values)
    with pytest.raises(ConfigError, match="did you mean 'median'"):
        aggregators.build("medain")
    with pytest.raises(ParameterError, match="wanted a function"):
        aggregators.build(3)
