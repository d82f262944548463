import time

import pytest
import torch
from protocols import verbs

from mpisign import simulate
from mpisign.comm import Comm, Message, as_comm
from mpisign.errors import DataError, DeadlockError, DisagreementError

SIZES = (1, 2, 3, 4, 7, 16)


@pytest.mark.parametrize("size", SIZES)
def test_every_verb_does_what_it_says(size: int) -> None:
    counts = simulate(size, verbs)
    others = size - 1
    for root in {0, others}:
        assert [c[f"bcast from {root}"] for c in counts] == [40 * others if rank == root else 0 for rank in range(size)]
        assert [c[f"gather to {root}"] for c in counts] == [0 if rank == root else 16 for rank in range(size)]
        assert [c[f"collect at {root}"] for c in counts] == [0 if rank == root else 8 for rank in range(size)]
    assert {c["allgather"] for c in counts} == {8 * others}
    assert {c["alltoall"] for c in counts} == {24 * others}
    assert {c["exchange"] for c in counts} == {16 * min(others, 2)}


def test_a_large_sum_moves_two_vectors_not_n() -> None:
    for size in (4, 7, 16):
        share = -(-30_001 // size)
        assert {c["large allreduce"] for c in simulate(size, verbs)} == {2 * 4 * share * (size - 1)}


def test_two_runs_send_the_same_messages_in_the_same_order() -> None:
    first: list[Message] = []
    second: list[Message] = []
    simulate(5, verbs, log=first)
    simulate(5, verbs, log=second)
    assert first == second
    assert len(first) > 100


def test_a_deadlock_says_who_waits_for_whom() -> None:
    def each_waits_first(comm: Comm) -> None:
        comm._wait_all([comm._irecv(torch.zeros(1), 1 - comm.rank, 0)])
        comm._isend(torch.ones(1), 1 - comm.rank, 0)

    with pytest.raises(DeadlockError, match=r"^rank 0 waits for rank 1; rank 1 waits for rank 0$"):
        simulate(2, each_waits_first)


def test_a_rank_that_leaves_early_is_named_in_the_deadlock() -> None:
    with pytest.raises(DeadlockError, match=r"rank 0 waits for rank 1.*ended: rank 1"):
        simulate(3, lambda comm: comm.gather(torch.ones(1)) if comm.rank != 1 else None)


def test_an_exception_of_one_rank_ends_all_and_keeps_its_type() -> None:
    def body(comm: Comm) -> None:
        if comm.rank == 1:
            raise ZeroDivisionError("on purpose")
        comm.barrier()

    started = time.monotonic()
    with pytest.raises(ZeroDivisionError, match="on purpose") as caught:
        simulate(4, body)
    assert time.monotonic() - started < 5
    assert caught.value.__notes__ == ["on rank 1 of 4 simulated ranks"]


def test_an_error_of_one_rank_is_raised_on_all() -> None:
    def body(comm: Comm) -> str:
        try:
            comm.raise_together(DataError("no such file") if comm.rank == 2 else None)
        except DataError as error:
            return f"{error} {error.everywhere}"
        return ""

    assert simulate(4, body) == ["no such file True"] * 4
    assert simulate(4, lambda comm: comm.raise_together(None)) == [None] * 4


def test_insisting_raises_on_all_where_ranks_differ() -> None:
    def body(comm: Comm) -> bool:
        comm.insist(7, DisagreementError("never"))
        try:
            comm.insist(comm.rank, DisagreementError("different"))
        except DisagreementError as error:
            return error.everywhere
        return False

    assert simulate(3, body) == [True] * 3


def test_blocks_of_different_lengths_are_an_error_not_garbage() -> None:
    with pytest.raises(ValueError, match=r"rank 0 expects .*2.* from rank 1, but rank 1 sent .*3"):
        simulate(2, lambda comm: comm.gather(torch.ones(2 + comm.rank)))


def test_blocks_of_different_dtypes_are_an_error_of_the_rank_that_receives() -> None:
    with pytest.raises(ValueError, match=r"rank 0 expects .*float32.* rank 1 sent .*int64.*one dtype") as caught:
        simulate(3, lambda comm: comm.gather(torch.tensor([1 if comm.rank else 1.5])))
    assert caught.value.__notes__ == ["on rank 0 of 3 simulated ranks"]


@pytest.mark.parametrize(
    "block, error",
    [
        (torch.ones(2, 2), ValueError),
        (torch.ones(2, 2).t()[0], ValueError),
        (torch.ones(6)[::2], ValueError),
        (torch.ones(3, requires_grad=True), ValueError),
        (torch.ones(3, dtype=torch.bfloat16), TypeError),
        (torch.ones(3, dtype=torch.float16), TypeError),
        (torch.ones(3, dtype=torch.complex64), TypeError),
    ],
)
def test_what_mpi_would_garble_is_refused(block: torch.Tensor, error: type[Exception]) -> None:
    with pytest.raises(error, match="a message must be"):
        simulate(1, lambda comm: comm.bcast(block))


@pytest.mark.parametrize("block", [3, 2.5, None, [1, 2]])
def test_what_is_no_tensor_is_no_message(block: object) -> None:
    with pytest.raises(TypeError, match=f"must be a torch tensor .* got {type(block).__name__}"):
        simulate(2, lambda comm: comm.bcast(block))


def test_words_are_not_summed() -> None:
    with pytest.raises(TypeError, match="allreduce takes"):
        simulate(1, lambda comm: comm.allreduce(torch.ones(1, dtype=torch.uint64)))


def test_the_server_holds_few_ballots_at_a_time() -> None:
    def body(comm: Comm) -> int:
        return max((len(blocks) for blocks in comm.collect(torch.tensor([comm.rank]), buffers=3)), default=0)

    assert max(simulate(16, body)) <= 3


def test_collects_that_follow_each_other_are_not_confused() -> None:
    def body(comm: Comm) -> list[list[int]]:
        rounds = []
        for number in range(5):
            rounds.append(sorted(int(b) for blocks in comm.collect(torch.tensor([number])) for b in blocks))
        return rounds

    assert simulate(4, body)[0] == [[number] * 4 for number in range(5)]


def test_no_ranks_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least 1 rank, got 0"):
        simulate(0, lambda comm: None)


def test_a_program_in_the_place_of_the_number_of_ranks_is_an_error() -> None:
    with pytest.raises(TypeError, match=r"number of ranks first.* got function"):
        simulate(lambda comm: None, 4)  # type: ignore[arg-type]


def test_what_is_no_communicator_is_named() -> None:
    with pytest.raises(TypeError, match="got str: 'world'"):
        as_comm("world")
