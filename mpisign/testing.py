"""The contract of each kind of thing, as checks that anybody's own can be put through; failing ones raise AssertionError.

    from mpisign.testing import check_algorithm
    def test_mine(): check_algorithm(Mine)

mpisign's own tests run them over everything in the registry. All run in the simulator, without MPI.
"""

import inspect
import pickle
import random
from collections.abc import Callable, Sequence
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor, nn

from . import kernels, reference
from .aggregators import Aggregator
from .algorithms.base import DistributedOptimizer, checksum
from .attacks import Attack
from .codecs import Codec, ErrorFeedback
from .collectives import VoteFactory
from .comm import Comm, simulate
from .errors import TopologyError
from .overhearing import BallotAttack, GradientAttack
from .topology import Digraph, Graph, OnePeerExponential, Topology, Tree

RANKS = (1, 2, 3, 4, 7)
"""Numbers of ranks that checks run with: powers of two alone would hide faults."""

_STEPS = 6


def odd_model(seed: int = 0) -> dict[str, nn.Parameter]:
    """Parameters of all shapes that a model may have: empty, 0-dim, single, word-sized, strided, frozen, half precision."""
    random = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=random)

    parameters = {
        "empty": draw(0),
        "scalar": draw(),
        "single": draw(1),
        "word": draw(64),
        "matrix": draw(13, 5),
        "transposed": draw(7, 9).t(),
        "strided": draw(6, 8)[:, ::2],
        "channels_last": draw(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "double": draw(10).double(),
        "half": draw(70).half(),
        "bfloat16": draw(70).bfloat16(),
    }
    model = {name: nn.Parameter(tensor) for name, tensor in parameters.items()}
    model["frozen"] = nn.Parameter(draw(65), requires_grad=False)
    return model


def give_gradients(model: dict[str, nn.Parameter], rank: int, step: int, without: Sequence[str] = ()) -> None:
    """Give each trainable parameter, but those named in `without`, a gradient of this rank's and step's own."""
    random = torch.Generator().manual_seed(1000 * step + rank)
    for name, p in model.items():
        if p.requires_grad:
            noise = torch.randn(p.shape, generator=random, dtype=torch.float32)
            p.grad = None if name in without else (p.detach().float() + noise).to(p.dtype)


def check_algorithm(make: Callable[..., DistributedOptimizer], ranks: Sequence[int] = RANKS) -> None:
    """Check an algorithm, `make(params, comm=…)`, with its defaults.

    Equal parameters on all ranks, whatever shapes and dtypes; the same bits in a second run; a worker without gradients,
    or with NaN, harms nobody; every hyperparameter that it takes has an effect; schedulers, closures, groups and
    state_dict work, and a resumed run equals an uninterrupted one. Of one that is not `replicated` all but the first,
    each rank having a model of its own; and a worker with NaN does as one without gradients.
    """
    if simulate(1, lambda comm: make(odd_model().values(), comm=comm).replicated)[0]:
        _check_equal_models(make, ranks)
        _check_nothing_to_vote_on(make)
    else:
        _check_own_models(make, ranks)
        _check_nothing_to_relay(make)
    _check_hyperparameters(make)
    _check_as_torch_optimizer(make)


def _check_equal_models(make: Callable[..., DistributedOptimizer], ranks: Sequence[int]) -> None:
    for size in ranks:
        first, second = (simulate(size, _train, make) for _ in range(2))
        _require(len(set(first)) == 1, f"{size} ranks end with different parameters")
        _require(first == second, f"{size} ranks end with other parameters in a second run")
        absent = simulate(size, _train, make, lambda rank, step: "all" if rank == 0 and step == 2 else "")
        _require(len(set(absent)) == 1, f"{size} ranks differ after a step in which rank 0 has no gradient")
        nan = simulate(
            size, _train, make, lambda rank, step, last=size - 1: "nan" if rank == last and step == 2 else ""
        )
        _require(len(set(nan)) == 1, f"{size} ranks differ after a step with NaN on one of them")


def _check_own_models(make: Callable[..., DistributedOptimizer], ranks: Sequence[int]) -> None:
    for size in ranks:
        first, second = (simulate(size, _train, make) for _ in range(2))
        _require(first == second, f"{size} ranks end with other parameters in a second run")
        absent, nan = (
            simulate(size, _train, make, lambda rank, step, what=what: what if rank == 0 and step == 2 else "")
            for what in ("all", "nan everywhere")  # one that is finite in part may count in part
        )
        _require(absent != first, f"{size} ranks: a gradient of rank 0 has no effect")
        _require(absent == nan, f"{size} ranks: a step with NaN is not the same as one without gradients")


def _require(fact: bool, otherwise: str) -> None:
    if not fact:
        raise AssertionError(otherwise)


def _no_trouble(rank: int, step: int) -> str:
    return ""


def _train(
    comm: Comm,
    make: Callable[..., DistributedOptimizer],
    trouble: Callable[[int, int], str] = _no_trouble,
    settings: dict[str, Any] | None = None,
) -> int:
    model = odd_model(seed=comm.rank)  # different on purpose: constructing must make them equal
    optimizer = make(model.values(), comm=comm, **(settings or {}))
    frozen = model["frozen"].detach().clone()
    for step in range(_STEPS):
        what = trouble(comm.rank, step)
        give_gradients(model, comm.rank, step, list(model) if what == "all" else ["single"] if comm.rank else [])
        for name in ["matrix"] if what == "nan" else list(model) if what == "nan everywhere" else []:
            if model[name].requires_grad:
                model[name].grad = torch.full_like(model[name], float("nan"))
        with np.errstate(all="ignore"):
            _step_without_warning(optimizer)
        _require(
            optimizer.report.finite == ("nan" not in what), f"step {step}: report.finite is {optimizer.report.finite}"
        )
        if not optimizer.replicated:
            continue  # nobody knows of all
        about = step - optimizer.late
        troubles = [trouble(rank, about) if about >= 0 else "all" for rank in range(comm.size)]
        # one whose gradient is finite in part may abstain on the rest only, or as a whole
        least, most = comm.size - sum(map(bool, troubles)), comm.size - troubles.count("all")
        voters = optimizer.report.voters
        _require(least <= voters <= most, f"step {step}: {voters} voters, not {least} to {most}")
    _require(torch.equal(frozen, model["frozen"]), "a parameter without gradient was changed")
    _require(all(bool(p.isfinite().all()) for p in model.values()), "a parameter is no longer finite")
    return checksum(model.values())


def _step_without_warning(optimizer: DistributedOptimizer) -> None:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        optimizer.step()


def _check_nothing_to_vote_on(make: Callable[..., DistributedOptimizer]) -> None:
    def body(comm: Comm) -> bool:
        model = odd_model()
        optimizer = make(model.values(), comm=comm)
        before = checksum(model.values())
        optimizer.step()
        return optimizer.report.voters == 0 and checksum(model.values()) == before

    _require(all(simulate(3, body)), "a step in which no rank has a gradient changed a parameter, or counted voters")


def _check_nothing_to_relay(make: Callable[..., DistributedOptimizer]) -> None:
    def body(comm: Comm) -> bool:
        model = odd_model()
        optimizer = make(model.values(), comm=comm)
        before = [p.detach().clone() for p in model.values()]
        for _ in range(_STEPS):
            optimizer.step()
        return all(
            torch.allclose(p, q, rtol=8 * torch.finfo(p.dtype).eps)  # means of equal numbers, rounded
            for p, q in zip(model.values(), before, strict=True)
        )

    _require(all(simulate(3, body)), "steps in which no rank has a gradient moved a model away from the start")


def _check_hyperparameters(make: Callable[..., DistributedOptimizer]) -> None:
    plain = simulate(2, _train, make)
    takes = inspect.signature(make).parameters
    other = not takes["nesterov"].default if "nesterov" in takes else True
    for name, value in (("lr", 0.017), ("momentum", 0.3), ("weight_decay", 0.3), ("nesterov", other), ("seed", 5)):
        if name in takes:
            # a seed has nothing to name but a codec's coins where a codec can be chosen
            chosen = {"codec": "qsgd:4"} if name == "seed" and "codec" in takes else {}
            before = simulate(2, _train, make, _no_trouble, chosen) if chosen else plain
            changed = simulate(2, _train, make, _no_trouble, {name: value, **chosen})
            _require(changed != before, f"{name}={value} has no effect")


def _check_as_torch_optimizer(make: Callable[..., DistributedOptimizer]) -> None:
    def whole(comm: Comm) -> int:
        model = odd_model()
        optimizer = make(_two_groups(model), comm=comm)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        for step in range(_STEPS):
            _require(
                optimizer.step(_closure(model, comm.rank, step)) == step, "step does not return the closure's loss"
            )
            schedule.step()
        return checksum(model.values())

    def resumed(comm: Comm) -> int:
        model, saved = odd_model(), dict[str, Any]()
        for first, last in ((0, 3), (3, _STEPS)):
            optimizer = make(_two_groups(model), comm=comm)
            schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
            if saved:
                optimizer.load_state_dict(saved["optimizer"])
                schedule.load_state_dict(saved["schedule"])
            for step in range(first, last):
                optimizer.step(_closure(model, comm.rank, step))
                schedule.step()
            state = optimizer.state_dict()
            saved = {"optimizer": {**state, "state": _copied(state["state"])}, "schedule": schedule.state_dict()}
        return checksum(model.values())

    _require(
        simulate(3, whole) == simulate(3, resumed), "a run resumed from state_dict differs from an uninterrupted one"
    )


def _two_groups(model: dict[str, nn.Parameter]) -> list[dict[str, Any]]:
    names = list(model)
    return [
        {"params": [model[name] for name in names[:5]]},
        {"params": [model[name] for name in names[5:]], "lr": 0.02},
    ]


def _closure(model: dict[str, nn.Parameter], rank: int, step: int) -> Callable[[], int]:
    def evaluate() -> int:
        give_gradients(model, rank, step)
        return step

    return evaluate


def _copied(state: dict[Any, dict[str, Any]]) -> dict[Any, dict[str, Any]]:
    return {
        key: {name: value.clone() if isinstance(value, Tensor) else value for name, value in entry.items()}
        for key, entry in state.items()
    }


def check_vote(make: VoteFactory, ranks: Sequence[int] = RANKS) -> None:
    """Check a vote, `make(comm, layout, tie, seed, ballots=…)`: the reference's verdict, bit for bit, for each tie rule.

    With one ballot a rank and with two, on one machine and with two ranks a machine. Of a vote that says that it is not
    exact, only that all ranks get the same verdict.
    """
    for size in ranks:
        for per_node in (size, 2):
            for ballots in (1, 2):
                _check_vote(make, size, per_node, ballots)


def _check_vote(make: VoteFactory, size: int, per_node: int, ballots: int) -> None:
    numels = (0, 1, 63, 64, 65, 1001)
    layout, random = kernels.Layout(numels), np.random.default_rng(size)
    signs = [[random.random(n) < 0.5 for n in numels] for _ in range(size * ballots)]
    present = random.random((size, len(numels))) < 0.8

    def body(comm: Comm, tie: kernels.Tie) -> list[bytes]:
        vote = make(comm, layout, tie, 3, ballots=ballots)
        verdicts = []
        for step in range(3):
            here = np.roll(present, -step, axis=0)
            own = signs[comm.rank * ballots : (comm.rank + 1) * ballots]
            verdict = vote(torch.cat([_ballot(layout, one, here[comm.rank]) for one in own]), step)
            verdicts.append(verdict.message.numpy().tobytes())
            _require(verdict.voters == int(here.any(axis=1).sum()), f"{verdict.voters} voters counted")
            if vote.exact:
                _require_verdict(verdict, signs, here.repeat(ballots, axis=0), kernels.stream(vote.coins, step))
        return verdicts

    for tie in get_args(kernels.Tie):
        verdicts = simulate(size, body, tie, per_node=per_node)
        _require(len(set(map(tuple, verdicts))) == 1, f"{size} ranks got different verdicts")


def _ballot(layout: kernels.Layout, signs: Any, present: Any) -> Tensor:
    ballot = torch.zeros(layout.message, dtype=torch.uint64)
    gradients = [
        torch.from_numpy(np.where(s, -1, 1).astype(np.float32)) if here else None
        for s, here in zip(signs, present, strict=True)
    ]
    one = np.ones(len(layout.numels), np.float32)
    kernels.sign_ballot(layout, gradients, None, one, one, "plus", 0, ballot)
    return ballot


def _require_verdict(verdict: kernels.Verdict, signs: Any, present: Any, key: int) -> None:
    layout = verdict.layout
    _require(verdict.decided.tolist() == present.any(axis=0).tolist(), "other parameters decided than were voted on")
    for p, start in enumerate(layout.starts.tolist()):
        votes = np.array([ballot[p] for ballot, here in zip(signs, present[:, p], strict=True) if here], np.bool_)
        if not len(votes):
            continue
        negative, tied = reference.majority(votes, verdict.tie, key, start)
        stop = start + (int(layout.numels[p]) + 63) // 64
        _require(
            verdict.words[start:stop].tobytes() == reference.pack(negative).tobytes(), f"wrong verdict on parameter {p}"
        )
        if verdict.tie == "abstain":
            _require(
                verdict.ties[start:stop].tobytes() == reference.pack(tied).tobytes(), f"wrong ties on parameter {p}"
            )


def check_attack(make: Callable[[int, Sequence[int], int, int], Attack], ranks: Sequence[int] = RANKS) -> None:
    """Check an attack, `make(rank, ranks, size, seed)`: what it says has the shapes and dtypes of the gradients, or is None.

    The same seed gives the same bits, and neither its input nor torch's global generator changes; so for labels, and for
    what it says after it has heard the honest workers' gradients, or their ballots.
    """
    for size in ranks:
        liars = tuple(range(max(size // 2, 1), size))  # somebody is honest
        for rank in liars:
            first, second = (_lies(make(rank, liars, size, 3)) for _ in range(2))
            _require(first == second, f"rank {rank} of {size} says something else in a second run with the same seed")


def _lies(attack: Attack) -> list[Any]:
    """Let it speak for some steps, the last without gradients; return what it said, as numbers to compare."""
    chance, said = torch.get_rng_state(), list[Any]()
    for step in range(_STEPS):
        model = odd_model()
        give_gradients(model, attack.rank, step, list(model) if step == _STEPS - 1 else ["single"])
        gradients = [p.grad for p in model.values()]
        before = [g if g is None else g.clone() for g in gradients]
        heard = _honest_gradients(attack, step)
        if isinstance(attack, GradientAttack):
            attack.hear(heard)
        lies = attack(gradients, step)
        same = all(_same(*pair) for pair in zip(heard, _honest_gradients(attack, step), strict=True))
        _require(same, f"step {step}: the attack changed what it heard")
        _require(_same(gradients, before), f"step {step}: the attack changed its input")
        _require(len(lies) == len(model), f"step {step}: {len(lies)} gradients for {len(model)} parameters")
        for (name, p), lie in zip(model.items(), lies, strict=True):
            fits = lie is None or (lie.shape == p.shape and lie.dtype == p.dtype and not lie.requires_grad)
            _require(fits, f"step {step}: {name} is {p.dtype}{list(p.shape)}, but the attack says {lie}")
        said += [None if lie is None else checksum([lie]) for lie in lies]
    y = torch.arange(10)
    labels = attack.labels(y, 10)
    _require(y.tolist() == list(range(10)), "the attack changed its input, the labels")
    fits = labels.dtype == y.dtype and labels.shape == y.shape and bool(((labels >= 0) & (labels < 10)).all())
    _require(fits, f"wanted labels int64[10] from 0 to 9, but the attack says {labels}")
    if isinstance(attack, BallotAttack):
        said += _ballots(attack)
    _require(torch.equal(chance, torch.get_rng_state()), "the attack draws from torch's global generator")
    return [*said, labels.tolist()]


def _honest_gradients(attack: Attack, step: int) -> list[list[Tensor | None]]:
    """What the honest workers say: all but one parameter, the first of them with NaN in another, nobody at the last step."""
    honest: list[list[Tensor | None]] = []
    for rank in sorted(set(range(attack.size)) - set(attack.ranks)):
        model = odd_model()
        give_gradients(model, rank, step, list(model) if step == _STEPS - 1 else ["single"])
        matrix = model["matrix"].grad
        if matrix is not None and rank == 0:
            matrix[0, 0] = float("nan")
        honest.append([p.grad for p in model.values()])
    return honest


def _ballots(attack: BallotAttack) -> list[Any]:
    """Let it see honest ballots of several lengths, with abstentions; return its own."""
    random, said = np.random.default_rng(1), list[Any]()
    for step in range(_STEPS):
        for numel in (0, 1, 63, 64, 65):
            honest = random.integers(-1, 2, (attack.size - len(attack.ranks), numel)).astype(np.int8)
            before = honest.copy()
            votes = attack.votes(honest, step)
            _require(np.array_equal(honest, before), f"step {step}: the attack changed its input, the honest ballots")
            fits = isinstance(votes, np.ndarray) and votes.dtype == np.int8 and votes.shape == (numel,)
            _require(
                fits and bool((abs(votes) == 1).all()),
                f"wanted votes int8[{numel}] of -1 and 1, but the attack says {votes}",
            )
            said.append(votes.tolist())
    return said


def _same(tensors: Sequence[Tensor | None], others: Sequence[Tensor | None]) -> bool:
    return all(
        a is b if a is None or b is None else checksum([a]) == checksum([b])
        for a, b in zip(tensors, others, strict=True)
    )


def check_partition(deal: Callable[..., Sequence[Any]], argument: float | None = None) -> None:
    """Check a partition, `deal(labels, workers, seed, argument)`: samples equally often, and the same for the same seed."""
    labels = np.random.default_rng(0).integers(10, size=2003)
    for workers in RANKS:
        parts, again = deal(labels, workers, 1, argument), deal(labels, workers, 1, argument)
        _require(len(parts) == workers, f"{len(parts)} parts for {workers} workers")
        _require(
            len(set(np.bincount(np.concatenate(parts), minlength=len(labels)).tolist())) == 1,
            "some samples are missing, or dealt more often than others",
        )
        _require(all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True)), "the same seed deals otherwise")


def check_codec(make: Callable[[int], Codec]) -> None:
    """Check a codec, `make(numel)`: messages of fixed length, and the same bits whenever the same is encoded.

    Encoding and decoding change neither their input nor one another; zeros come back as zeros; what is not finite is not
    accepted. What it says of itself holds: `unbiased`, `repeats`, and with `feedback` that nothing is lost for good.
    """
    for numel in (0, 1, 63, 64, 65, 1001):
        random = np.random.default_rng(numel)
        vector = torch.from_numpy((random.standard_normal(numel) * (random.random(numel) < 0.8)).astype(np.float32))
        codec = make(numel)
        _check_messages(codec, vector, f"{numel} coordinates")
        zeros = codec.decode(codec.encode(torch.zeros(numel), 3))
        _require(not zeros.any(), f"{numel} coordinates: zeros come back as something else")
        for bad in (float("nan"), float("inf")) if numel else ():
            spoilt = vector.clone()
            spoilt[-1] = bad
            _require(not codec.accepts(spoilt), f"{numel} coordinates: it accepts a vector with {bad}")
        if codec.feedback:
            _check_feedback(make(numel), random)
    if codec.unbiased:
        _check_unbiased(make(65))


def _check_messages(codec: Codec, vector: Tensor, where: str) -> None:
    before = vector.clone()
    _require(codec.accepts(vector), f"{where}: it does not accept a vector of small numbers")
    message = codec.encode(vector, 3)
    _require(torch.equal(vector, before), f"{where}: encode changed its input")
    fits = message.dtype == torch.uint64 and message.shape == (codec.words,) and codec.nbytes == message.nbytes
    _require(fits, f"{where}: wanted a message uint64[{codec.words}], got {message.dtype}{list(message.shape)}")
    sent = message.clone()
    back = codec.decode(message)
    _require(torch.equal(message, sent), f"{where}: decode changed its input")
    fits = back.dtype == torch.float32 and back.shape == vector.shape and bool(back.isfinite().all())
    _require(fits, f"{where}: wanted finite float32[{len(vector)}] back, got {back.dtype}{list(back.shape)}")
    kept = back.numpy().tobytes()
    back.zero_()
    _require(codec.decode(message).numpy().tobytes() == kept, f"{where}: what was decoded is no memory of its own")
    _require(torch.equal(codec.encode(vector, 3), sent), f"{where}: encode, decode, encode gives other bits")
    if codec.repeats:
        again = codec.encode(codec.decode(message), 4)
        _require(torch.equal(again, sent), f"{where}: what has come back is encoded to other bits")


def _check_feedback(codec: Codec, random: np.random.Generator) -> None:
    """What came out and what is owed is what went in; of whole numbers, so that only what a codec makes of them is rounded."""
    wrapped, given, taken = ErrorFeedback(codec), torch.zeros(codec.numel), torch.zeros(codec.numel)
    for key in range(30):
        vector = torch.from_numpy(random.integers(-100, 101, codec.numel).astype(np.float32))
        given += vector
        taken += wrapped.decode(wrapped.encode(vector, key))
        lost = (taken + wrapped.residual - given).abs()
        # sums stay below 4096, whose float32 neighbours are 2^-12 apart: two roundings of half of it a message
        _require(bool((lost <= (key + 1) * 2.0**-12).all()), f"{codec.numel} coordinates: something is lost for good")


def _check_unbiased(codec: Codec) -> None:
    draws, random = 10_000, np.random.default_rng(0)
    vector = torch.from_numpy(random.standard_normal(codec.numel).astype(np.float32))
    back = torch.stack([codec.decode(codec.encode(vector, 1000 * key)) for key in range(draws)]).double()
    apart = back.mean(0) - vector
    # five standard errors, by the noisiest coordinate: a quiet one may show a rare value too seldom to tell its own; and
    # 2^-22 of the norm, for the rounding of a norm and of a probability
    rounding = 2.0**-22 * float(vector.norm())
    most = 5 * float(back.std(0).max()) / draws**0.5 + rounding
    _require(
        bool((apart.abs() <= most).all()), f"it is biased: off by {float(apart.abs().max()):.2g}, above {most:.2g}"
    )
    # all coordinates together: a little too small everywhere would pass the other test
    inwards = float((apart * vector.sign()).sum())
    most = 5 * float(back.var(0).sum()) ** 0.5 / draws**0.5 + codec.numel * rounding
    _require(abs(inwards) <= most, f"it is biased: magnitudes are off by {inwards:.2g} in all, above {most:.2g}")


def check_aggregator(aggregate: Aggregator, workers: Sequence[int] = (7, 8, 11)) -> None:
    """Check an aggregator, float32[n, d] -> float32[d], finite for finite rows, with so many workers.

    It does not change its rows; the same rows give the same bits; equal workers give what one gives; every coordinate lies
    between the smallest and the largest of the rows; who has which rank makes no difference.
    """
    for n in workers:
        for numel in (0, 1, 64, 65):
            random = np.random.default_rng(n)
            rows = torch.from_numpy(random.standard_normal((n, numel)).astype(np.float32))
            before, where = rows.clone(), f"{n} workers, {numel} coordinates"
            result = aggregate(rows)
            _require(torch.equal(rows, before), f"{where}: it changed its rows")
            fits = result.dtype == torch.float32 and result.shape == (numel,) and bool(result.isfinite().all())
            _require(fits, f"{where}: wanted finite float32[{numel}], got {result.dtype}{list(result.shape)}")
            _require(torch.equal(aggregate(rows), result), f"{where}: other bits for the same rows")
            near = 1e-6 * n  # sums of n numbers of about 1, rounded to float32 each time
            inside = (result >= rows.amin(0) - near) & (result <= rows.amax(0) + near)
            _require(bool(inside.all()), f"{where}: the result is outside of what the workers say")
            equal = aggregate(rows[:1].repeat(n, 1))
            _require(bool(((equal - rows[0]).abs() <= near).all()), f"{where}: equal workers give something else")
            other = aggregate(rows[torch.from_numpy(random.permutation(n))])
            _require(
                bool(((other - result).abs() <= near).all()), f"{where}: ranks in another order give something else"
            )


def check_topology(build: Callable[..., Topology], sizes: Sequence[int] = (1, 2, 3, 4, 7, 8, 16, 32)) -> None:
    """Check a topology: `build(n)`, with its defaults, gives a Graph, Tree, Digraph, one-peer graph or several trees.

    It has n nodes; a number of nodes that it can't have is refused with TopologyError, but not each of `sizes`; the same
    arguments give equal topologies, with the same hash, also on the other side of a pickle; a `seed` that it takes has
    an effect; no global generator is used. That it is connected, and the like, the classes themselves see to.
    """
    takes_seed = "seed" in inspect.signature(build).parameters
    found = {}
    for n in sizes:
        before = _global_chance()
        try:
            topology = build(n)
        except TopologyError:
            continue
        except Exception as error:
            raise AssertionError(f"{n} nodes: {type(error).__name__}: {error}, not a TopologyError") from error
        found[n] = topology
        _check_topology_of(topology, n, build)
        _require(_global_chance() == before, f"{n} nodes: a global generator was used or seeded")
    _require(len(found) > 0, f"it refuses all of {', '.join(map(str, sizes))} nodes")
    if takes_seed:
        n = max(found)
        _require(len({build(n, seed=seed) for seed in range(8)}) > 1, f"{n} nodes: seed has no effect")


def _check_topology_of(topology: Topology, n: int, build: Callable[..., Topology]) -> None:
    trees = isinstance(topology, tuple) and topology and all(isinstance(each, Tree) for each in topology)
    fits = trees or isinstance(topology, Graph | Digraph | OnePeerExponential)
    _require(bool(fits), f"{n} nodes: it gave {type(topology).__name__}, not a Graph, Tree, Digraph or several trees")
    sizes = {each.size for each in topology} if isinstance(topology, tuple) else {topology.size}
    _require(sizes == {n}, f"{n} nodes were asked for, {', '.join(map(str, sizes))} came")
    for other, where in ((build(n), "in a second call"), (pickle.loads(pickle.dumps(topology)), "after a pickle")):  # noqa: S301
        _require(topology == other and hash(topology) == hash(other), f"{n} nodes: another topology {where}")


def _global_chance() -> bytes:
    return pickle.dumps((np.random.get_state(), random.getstate(), torch.get_rng_state().tolist()))  # noqa: NPY002
