"""GPUs: who has which, whether MPI takes their memory, and what copies cost."""

import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from .ranks import Place
from .report import Report, first_line

_BALLOT = 3_200_000  # bytes


def examine_gpus(report: Report, places: list[Place]) -> None:
    """Show who has which GPU, what a probe says of MPI, and what copies cost."""
    owners: dict[str, list[int]] = defaultdict(list)
    for rank, place in enumerate(places):
        if place.gpu:
            owners[f"{place.gpu} on {place.host}"].append(rank)
    if not owners:
        report.fact("GPUs", "none that --device cuda could use; whether MPI takes GPU memory is not probed")
        return
    listed = (f"{gpu}: rank {', '.join(map(str, ranks))}" for gpu, ranks in owners.items())
    report.fact("GPUs", "; ".join(listed))
    own = places[0].gpu
    if own:
        from ..comm import awareness

        answer = awareness.consult(own)
        word = {True: "yes", False: "no", None: "unknown"}[answer.aware]
        report.fact("by probe", f"MPI takes GPU memory: {word} ({answer.reason})")
        try:
            report.fact("staging", _cost_of_staging(own))
        except Exception as error:
            report.problem(f"copies through pinned memory fail on {own}: {first_line(error)}", "see nvidia-smi")


def _cost_of_staging(device: str) -> str:
    import torch

    from ..comm.buffers import Staging

    staging = Staging(torch.device(device))
    there = [torch.zeros(words, dtype=torch.int64, device=device) for words in (512, _BALLOT // 8)]
    costs = [f"{1e3 * up:.3g} ms to the host and {1e3 * down:.3g} ms back" for up, down in _timed(staging, there)]
    return f"4 kB: {costs[0]}; {_BALLOT / 1e6:.1f} MB, a ballot of 25.6 M parameters: {costs[1]}"


def _timed(staging: Any, blocks: Sequence[Any]) -> list[tuple[float, float]]:
    """The median seconds of a copy of each block to pinned memory, and back, until the host knows that it is done."""
    found = []
    for block in blocks:
        host, ups, downs = staging.buffer(len(block), block.dtype), [], []
        for _ in range(9):
            started = time.perf_counter()
            staging.to_host(block, host)()
            between = time.perf_counter()
            staging.to_device(host, block, staging.now())()
            staging.now().synchronize()
            ups.append(between - started)
            downs.append(time.perf_counter() - between)
        found.append((statistics.median(ups), statistics.median(downs)))
    return found
