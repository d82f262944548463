"""Bytes that a worker hands to the network at each step of Signum, counted message by message, against float32."""

from dataclasses import dataclass

import harness  # before the others: it limits their threads
import torch
from resnet50 import NUMEL, Shape, shapes, size

import mpisign
from mpisign.comm import Comm, Message

SERVER = 0
MLP: list[Shape] = [(100, 784), (100,), (10, 100), (10,)]


@dataclass(frozen=True)
class Bytes:
    """Sums over all workers but the server: sent up and received, by `comm.traffic`, and sent up by the log of messages."""

    up: int
    down: int
    logged_up: int

    def __sub__(self, other: "Bytes") -> "Bytes":
        return Bytes(self.up - other.up, self.down - other.down, self.logged_up - other.logged_up)


def run(ranks: int, of: list[Shape], steps: int) -> Bytes:
    """Construct Signum on simulated ranks and take some steps; return the bytes of both together."""
    random = torch.Generator().manual_seed(0)
    gradients = [torch.randn(shape, generator=random) for shape in of]  # one copy: 16 workers only read it

    def body(comm: Comm) -> tuple[int, int]:
        parameters = [torch.nn.Parameter(torch.zeros(shape)) for shape in of]
        optimizer = mpisign.Signum(parameters, momentum=0.9, comm=comm)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        for _ in range(steps):
            optimizer.step()
        return comm.traffic.sent, comm.traffic.received

    log: list[Message] = []
    workers = mpisign.simulate(ranks, body, log=log)[1:]
    logged = sum(message.nbytes for message in log if message.dest == SERVER and message.source != SERVER)
    return Bytes(sum(sent for sent, _ in workers), sum(received for _, received in workers), logged)


def count(record: harness.Record, network: str, of: list[Shape], ranks: int, steps: int) -> None:
    """Print and keep the bytes of one worker and step: what further steps add to a run of none."""
    added, workers = run(ranks, of, steps) - run(ranks, of, 0), ranks - 1
    if added.up != added.logged_up:
        raise AssertionError(
            f"{network}, {ranks} ranks: {added.up} B up by Traffic, {added.logged_up} B by the messages"
        )
    up, down, float32 = added.up / workers / steps, added.down / workers / steps, 4 * sum(map(size, of))
    print(f"{network:18} {ranks:5d}  {up:12,.0f}  {down:12,.0f}  {float32:12,d}  {float32 / up:6.2f}", flush=True)
    entry = {"coordinates": float32 // 4, "up": up, "down": down, "up_by_the_log": added.logged_up / workers / steps}
    record.figure(f"{network}, {ranks} ranks", entry | {"float32": float32})
    record.check(f"{network}, {ranks} ranks: float32's bytes up over these", float32 / up, "≥", 31.5)


def main() -> None:
    """Count for two networks and several numbers of ranks."""
    flags = harness.parser("bytes_on_the_wire", __doc__, repeats=2, numel=NUMEL)
    flags.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 16], metavar="N", help="default: 2 4 16")
    settings = flags.parse_args()
    if min(settings.ranks) < 2:
        flags.error("--ranks: wanted at least 2, since one rank sends nothing")
    harness.one_thread()
    record = harness.Record("bytes_on_the_wire", settings)
    print(f"{'a worker, a step':18} ranks  {'B up':>12}  {'B down':>12}  {'B float32':>12}   times")
    for network, of in (("784-100-10", MLP), ("ResNet-50", shapes(settings.numel))):
        for ranks in settings.ranks:
            count(record, network, of, ranks, settings.repeats)
    print()
    record.close()


if __name__ == "__main__":
    main()
