"""Ballots that leave during backward: the same bits as without, whatever comes in between."""

import pytest
import torch
from protocols import batch, fit, small_model
from torch import nn

from mpisign import Lion, Signum, checksum, simulate
from mpisign.algorithms.buckets import runs
from mpisign.comm import Comm
from mpisign.errors import DisagreementError, ParameterError

pytestmark = pytest.mark.usefixtures("global_chance_is_untouched")


def loss_of(model: nn.Module, rank: int, step: int) -> torch.Tensor:
    x, y = batch(rank, step)
    return nn.functional.cross_entropy(model(x), y)


@pytest.mark.parametrize("vote", ["server", "sharded", "tree", "hierarchical"])
@pytest.mark.parametrize(
    "settings", [{}, {"zero": "abstain", "tie": "abstain"}, {"trust": 0.01, "weight_decay": 0.1}, {"momentum": 0.0}]
)
def test_overlap_changes_no_bit(vote: str, settings: dict[str, object]) -> None:
    def body(comm: Comm, overlap: bool, bucket: int) -> int:
        return fit(comm, Signum, 12, vote=vote, overlap=overlap, bucket=bucket, **settings)

    plain = simulate(3, body, False, 1)
    assert plain == simulate(3, body, True, 100) == simulate(3, body, True, 1 << 22)


def test_overlap_changes_no_bit_of_lion() -> None:
    assert simulate(3, fit, Lion) == simulate(3, lambda comm: fit(comm, Lion, overlap=True, bucket=50))


def test_buckets_follow_backward_and_hold_at_least_one_parameter() -> None:
    assert runs([600, 30, 90, 3], 100) == [(2, 4), (1, 2), (0, 1)]
    assert runs([], 100) == [(0, 0)]
    assert runs([0, 0, 5], 1) == [(0, 3)]


def test_most_ballots_are_cast_before_step_is_called() -> None:
    def body(comm: Comm) -> list[bool]:
        model = small_model()
        optimizer = Signum(model.parameters(), overlap=True, bucket=100, comm=comm)
        loss_of(model, comm.rank, 0).backward()
        return [bucket.result is not None for bucket in optimizer._cast_buckets.all]

    assert simulate(2, body) == [[True, True, True]] * 2


@pytest.mark.parametrize("overlap", [False, True])
def test_gradients_accumulate_inside_no_sync(overlap: bool) -> None:
    def body(comm: Comm) -> int:
        model = small_model()
        optimizer = Signum(model.parameters(), overlap=overlap, bucket=100, comm=comm)
        for step in range(4):
            optimizer.zero_grad()
            with optimizer.no_sync():
                loss_of(model, comm.rank, 2 * step).backward()
            loss_of(model, comm.rank, 2 * step + 1).backward()
            optimizer.step()
        return checksum(model.parameters())

    assert simulate(2, body) == simulate(2, lambda comm: accumulated(comm))


def accumulated(comm: Comm) -> int:
    """The same with one backward of the sum."""
    model = small_model()
    optimizer = Signum(model.parameters(), comm=comm)
    for step in range(4):
        optimizer.zero_grad()
        for half in (0, 1):
            loss_of(model, comm.rank, 2 * step + half).backward()
        optimizer.step()
    return checksum(model.parameters())


def test_a_second_backward_without_no_sync_is_refused() -> None:
    def body(comm: Comm) -> None:
        model = small_model()
        Signum(model.parameters(), overlap=True, comm=comm)
        loss_of(model, 0, 0).backward()
        loss_of(model, 0, 1).backward()

    with pytest.raises(ParameterError, match="no_sync"):
        simulate(1, body)


@pytest.mark.parametrize("meddle", [lambda p: p.grad.mul_(0.5), lambda p: setattr(p, "grad", p.grad.clone())])
def test_a_gradient_that_is_changed_after_its_ballot_was_cast_is_refused(meddle) -> None:
    def body(comm: Comm) -> None:
        model = small_model()
        optimizer = Signum(model.parameters(), overlap=True, comm=comm)
        loss_of(model, 0, 0).backward()
        meddle(model[0].weight)
        optimizer.step()

    with pytest.raises(ParameterError, match="has changed after its ballot was cast"):
        simulate(2, body)


def test_a_rank_without_a_batch_abstains_and_hangs_nobody() -> None:
    def body(comm: Comm, overlap: bool) -> tuple[int, list[int]]:
        model = small_model()
        optimizer = Signum(model.parameters(), overlap=overlap, bucket=100, comm=comm)
        voters = []
        for step in range(3):
            optimizer.zero_grad()
            if comm.rank != step:
                loss_of(model, comm.rank, step).backward()
            optimizer.step()
            voters.append(optimizer.report.voters)
        return checksum(model.parameters()), voters

    assert simulate(3, body, True) == simulate(3, body, False)
    assert simulate(3, body, True)[0][1] == [2, 2, 2]


def test_a_layer_that_is_not_finite_abstains_alike_with_and_without_overlap() -> None:
    def body(comm: Comm, overlap: bool) -> tuple[int, list[bool]]:
        model = small_model()
        optimizer = Signum(model.parameters(), overlap=overlap, bucket=100, comm=comm)
        finite = []
        for step in range(4):
            optimizer.zero_grad()
            loss = loss_of(model, comm.rank, step)
            if comm.rank == 1 and step == 2:
                loss = loss + model[2].bias.sum() * float("inf")  # the last layer alone
            loss.backward()
            optimizer.step()
            finite.append(optimizer.report.finite)
        return checksum(model.parameters()), finite

    with pytest.warns(RuntimeWarning, match="not finite"):
        with_overlap, without = simulate(2, body, True), simulate(2, body, False)
    assert with_overlap == without
    assert with_overlap[1][1] == [True, True, False, True]


def test_groups_can_be_added_and_hooks_are_not_doubled() -> None:
    def body(comm: Comm, overlap: bool) -> int:
        model = small_model()
        optimizer = Signum(model[0].parameters(), overlap=overlap, bucket=100, comm=comm)
        optimizer.add_param_group({"params": list(model[2].parameters()), "lr": 0.01})
        for step in range(3):
            optimizer.zero_grad()
            loss_of(model, comm.rank, step).backward()
            optimizer.step()
        return checksum(model.parameters())

    assert simulate(2, body, True) == simulate(2, body, False)


def test_ranks_that_overlap_differently_are_told() -> None:
    with pytest.raises(DisagreementError):
        simulate(2, lambda comm: fit(comm, Signum, overlap=comm.rank == 0))


def scaled(comm: Comm, overlap: bool, overflow_at: int = -1) -> tuple[int, int, list[float]]:
    """Train with a loss scaler, and let the gradient of rank 1 overflow in one step."""
    model = small_model()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    settings = {"overlap": True, "scaler": scaler, "bucket": 100} if overlap else {}
    optimizer = Signum(model.parameters(), comm=comm, **settings)
    for step in range(5):
        optimizer.zero_grad()
        loss = loss_of(model, comm.rank, step)
        if step == overflow_at and comm.rank == 1:
            loss = loss * 1e38
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    momentum = sum(float(state["momentum"].sum()) for state in optimizer.state.values())
    return checksum(model.parameters()), optimizer.steps_taken, [momentum]


@pytest.mark.parametrize("overlap", [False, True])
def test_a_scaled_loss_trains_like_an_unscaled_one(overlap: bool) -> None:
    plain = simulate(2, lambda comm: fit(comm, Signum, 5))
    assert [bits for bits, _, _ in simulate(2, scaled, overlap)] == plain


@pytest.mark.parametrize("overlap", [False, True])
def test_a_step_that_overflows_on_one_rank_is_skipped_by_all_and_changes_nothing(overlap: bool) -> None:
    ends = simulate(2, scaled, overlap, 3)
    assert [taken for _, taken, _ in ends] == [4, 4]
    assert ends[0][0] == ends[1][0]
    assert ends == simulate(2, scaled, not overlap, 3)


def test_a_scaler_that_the_optimizer_does_not_know_is_refused_under_overlap() -> None:
    def body(comm: Comm) -> None:
        model = small_model()
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
        optimizer = Signum(model.parameters(), overlap=True, comm=comm)
        scaler.scale(loss_of(model, 0, 0)).backward()
        scaler.step(optimizer)

    with pytest.raises(ParameterError, match="scaler="):
        simulate(1, body)
