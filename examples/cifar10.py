"""CIFAR-10 by vote, from a folder or an .npz file that you have.

mpirun -n 4 python -m mpi4py examples/cifar10.py --data ~/data

Set OMP_NUM_THREADS to the cores that each rank may use.
"""

import argparse
from pathlib import Path

import torch

import mpisign
from mpisign import seeding
from mpisign.tasks import models
from mpisign.tasks.images import CIFAR10


def settings(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="torchvision's folder, or an .npz as of Keras")
    parser.add_argument("--model", default="lenet", choices=["lenet", "vgg11"])
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch-size", type=int, default=64, help="of each rank")
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(argv)


def flipped(x, draw):
    """Half of the pictures, by chance, as in a mirror."""
    return torch.where(torch.rand(len(x), 1, 1, 1, generator=draw) < 0.5, x, x.flip(3))


def main(argv=None, comm=None):
    args = settings(argv)
    comm = comm or mpisign.MPIComm()
    task = CIFAR10()
    data = task.read(args.data)
    x, y = (torch.from_numpy(array)[comm.rank :: comm.size] for array in (data.x_train, data.y_train))
    with seeding.torch_seeded(args.seed, comm.rank, "model"):
        model = getattr(models, args.model)(data.shape, data.classes)  # all start from rank 0's weights

    optimizer = mpisign.Signum(model.parameters(), lr=args.lr, momentum=0.9, comm=comm)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    draw = seeding.torch_generator(args.seed, comm.rank, "batches")
    for step in range(1, args.steps + 1):
        batch = torch.randint(len(y), (args.batch_size,), generator=draw)
        optimizer.zero_grad()
        loss = task.loss(model, flipped(x[batch], draw), y[batch])
        loss.backward()
        optimizer.step()
        schedule.step()
        if comm.rank == 0 and (step % 100 == 0 or step == args.steps):
            print(f"step {step:5d}  loss {loss.item():.4f}", flush=True)

    return accuracy(comm, task, model, data)


def accuracy(comm, task, model, data):
    """Each rank judges its part of the test pictures."""
    mpisign.broadcast_buffers(model, comm)
    x, y = (torch.from_numpy(array)[comm.rank :: comm.size] for array in (data.x_test, data.y_test))
    right = torch.tensor([task.evaluate(model, x, y)[1]])
    share = comm.allreduce(right).item() / len(data.y_test)
    if comm.rank == 0:
        print(f"test accuracy {share:.4f}")
    return share


if __name__ == "__main__":
    main()
