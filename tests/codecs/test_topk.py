import numpy as np
import pytest
import torch

from mpisign.codecs import ErrorFeedback
from mpisign.codecs.topk import TopK

SIZES = [0, 1, 63, 64, 65, 1001]


def drawn(numel: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(numel, generator=torch.Generator().manual_seed(seed))


def test_the_largest_arrive_as_they_are_and_the_rest_as_zeros() -> None:
    for numel in SIZES:
        vector, codec = drawn(numel), TopK(numel, 0.1)
        back, count = codec.decode(codec.encode(vector, 0)), -(-numel // 10)
        assert codec.nbytes == 8 * count
        kept = vector.abs().sort(descending=True).indices[:count]
        assert torch.equal(back[kept], vector[kept])
        assert int((back != 0).sum()) == count


def test_of_equal_ones_the_first_go() -> None:
    codec = TopK(6, 0.5)
    assert codec.decode(codec.encode(torch.tensor([1.0, -2.0, 2.0, 2.0, -2.0, 0.5]), 0)).tolist() == [0, -2, 2, 2, 0, 0]
    assert codec.decode(codec.encode(torch.tensor([0.0, 0.0, 0.0, 0.0, -0.0, 5.0]), 0)).tolist() == [0, 0, 0, 0, 0, 5]


@pytest.mark.parametrize(
    "share, numel, count", [(0.07, 100, 7), (0.01, 1, 1), (1, 5, 5), (0.01, 101, 2), (0.29, 100, 29)]
)
def test_a_share_is_taken_as_it_was_typed_and_rounded_up(share: float, numel: int, count: int) -> None:
    assert TopK(numel, share).words == count


@pytest.mark.parametrize("share", [0, -0.1, 1.1, "all", True, float("nan")])
def test_other_shares_are_refused(share: object) -> None:
    with pytest.raises(ValueError, match="share must be a number above 0 and at most 1"):
        TopK(10, share)


@pytest.mark.parametrize("numel", SIZES)
def test_with_error_feedback_what_came_and_what_is_owed_is_exactly_what_went_in(numel: int) -> None:
    wrapped, given, taken = ErrorFeedback(TopK(numel, 0.05)), torch.zeros(numel), torch.zeros(numel)
    random = np.random.default_rng(numel)
    for step in range(100):
        # multiples of 2^-10 below 2^10 after a hundred sums: float32 holds them exactly
        vector = torch.from_numpy(random.integers(-2000, 2001, numel).astype(np.float32) / 1024)
        given += vector
        taken += wrapped.decode(wrapped.encode(vector, step))
        assert torch.equal(taken + wrapped.residual, given)


def test_with_any_numbers_it_is_so_but_for_rounding() -> None:
    wrapped, given, taken = ErrorFeedback(TopK(200, 0.05)), torch.zeros(200).double(), torch.zeros(200).double()
    for step in range(200):
        vector = drawn(200, step)
        given += vector
        taken += wrapped.decode(wrapped.encode(vector, step))
    # 200 sums v + e below 64, each rounded by at most 2^-19
    assert (taken + wrapped.residual - given).abs().max() < 200 * 2.0**-19
    assert taken.count_nonzero() == 200  # without feedback a coordinate that is never among the largest never arrives
    assert wrapped.residual.abs().max() < 64


def test_what_is_absent_is_not_sent_and_keeps_what_it_owes() -> None:
    wrapped = ErrorFeedback(TopK(4, 0.25))
    wrapped.encode(torch.tensor([5.0, 3.0, 1.0, 0.0]), 0)
    assert wrapped.residual.tolist() == [0, 3, 1, 0]
    present = torch.tensor([True, False, True, True])
    message = wrapped.encode(torch.tensor([0.5, 0.0, 0.5, 0.0]), 1, present)
    assert wrapped.decode(message).tolist() == [0, 0, 1.5, 0]
    assert wrapped.residual.tolist() == [0.5, 3, 0, 0]


def test_asking_whether_a_vector_is_accepted_changes_nothing() -> None:
    wrapped = ErrorFeedback(TopK(2, 0.5))
    wrapped.encode(torch.tensor([3e38, 3e38]), 0)
    assert wrapped.accepts(torch.zeros(2))
    assert not wrapped.accepts(torch.tensor([0.0, 3e38]))
    assert wrapped.residual.tolist() == [0, float(np.float32(3e38))]
