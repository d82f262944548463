"""A language model of characters by vote: each rank reads its own part of the text.

mpirun -n 4 python -m mpi4py examples/shakespeare.py --data input.txt

Without --data it learns one sonnet by heart. Set OMP_NUM_THREADS to the cores that each rank may use.
"""

import argparse
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import mpisign
from mpisign import seeding

SONNET = """\
Shall I compare thee to a summer's day?
Thou art more lovely and more temperate:
Rough winds do shake the darling buds of May,
And summer's lease hath all too short a date;
Sometime too hot the eye of heaven shines,
And often is his gold complexion dimm'd;
And every fair from fair sometime declines,
By chance or nature's changing course untrimm'd;
But thy eternal summer shall not fade,
"""


class Model(nn.Module):
    """A transformer: `int64[batch, length]` -> `float32[batch, length, letters]`, what comes after each."""

    def __init__(self, letters, length, width=64, layers=2, heads=4):
        super().__init__()
        self.letter, self.place = nn.Embedding(letters, width), nn.Embedding(length, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, letters)

    def forward(self, x):
        past = nn.Transformer.generate_square_subsequent_mask(x.shape[1])  # nobody sees what comes
        return self.head(self.layers(self.letter(x) + self.place.weight[: x.shape[1]], past, is_causal=True))


def settings(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="a text")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch-size", type=int, default=16, help="of each rank")
    parser.add_argument("--length", type=int, default=64, help="letters that it sees at once")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(argv)


def main(argv=None, comm=None):
    args = settings(argv)
    comm = comm or mpisign.MPIComm()
    text = args.data.read_text() if args.data else SONNET
    alphabet = sorted(set(text))
    letters = torch.tensor([alphabet.index(letter) for letter in text])
    own = letters.tensor_split(comm.size)[comm.rank] if args.data else letters
    if len(own) <= args.length + 1:
        raise SystemExit(f"{len(own)} letters for each rank: wanted a longer text, fewer ranks or a smaller --length")
    with seeding.torch_seeded(args.seed, comm.rank, "model"):
        model = Model(len(alphabet), args.length)  # all start from rank 0's weights

    optimizer = mpisign.Lion(model.parameters(), lr=args.lr, comm=comm)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    draw, losses = seeding.torch_generator(args.seed, comm.rank, "batches"), []
    for step in range(1, args.steps + 1):
        starts = torch.randint(len(own) - args.length, (args.batch_size, 1), generator=draw)
        batch = own[starts + torch.arange(args.length + 1)]  # [batch, length + 1]
        optimizer.zero_grad()
        loss = cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if comm.rank == 0 and (step % 50 == 0 or step == args.steps):
            print(f"step {step:5d}  loss {losses[-1]:.4f}", flush=True)
    if comm.rank == 0:
        print("".join(alphabet[k] for k in told(model, letters[: args.length // 2], draw)))
    return losses


@torch.no_grad()
def told(model, x, draw, count=200):
    """Go on with a text, letter by letter, each drawn from what the model expects."""
    for _ in range(count):
        expected = model(x[None, -model.place.num_embeddings :])[0, -1].softmax(0)
        x = torch.cat([x, torch.multinomial(expected, 1, generator=draw)])
    return x.tolist()


if __name__ == "__main__":
    main()
