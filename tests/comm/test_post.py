import pytest
import torch

from mpisign import simulate
from mpisign.comm import Comm, LossyComm


@pytest.mark.parametrize("loss", [None, 0.0])
def test_neighbours_that_know_the_lengths_may_send_different_ones(loss: float | None) -> None:
    def body(comm: Comm) -> tuple[dict[int, list[int]], int, int]:
        between = comm if loss is None else LossyComm(comm, loss)
        outbox = {j: torch.full((comm.rank + 1,), comm.rank) for j in range(comm.size) if j != comm.rank}
        inbox = between.post(outbox, sources={j: j + 1 for j in outbox}).wait()
        return {j: block.tolist() for j, block in inbox.items()}, comm.traffic.sent, comm.traffic.received

    for rank, (inbox, sent, received) in enumerate(simulate(4, body)):
        others = [j for j in range(4) if j != rank]
        assert inbox == {j: [j] * (j + 1) for j in others}
        assert sent == 8 * 3 * (rank + 1)
        assert received == 8 * sum(j + 1 for j in others)


def test_a_length_that_is_wrong_is_an_error_and_no_hang() -> None:
    def body(comm: Comm) -> None:
        comm.post({1 - comm.rank: torch.ones(3)}, sources={1 - comm.rank: 2}).wait()

    with pytest.raises(ValueError, match=r"expects torch.float32\[2\] from rank"):
        simulate(2, body)
