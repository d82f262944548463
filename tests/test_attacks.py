"""What liars can do to a vote, to a mean, and to a command line."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from protocols import batch, small_model
from torch import nn

from mpisign import SGD, DistributedOptimizer, Signum, reference, registry, simulate
from mpisign.attacks import Blind, Honest, Invert, LabelFlip, Random, Silent, Stale, byzantine_ranks
from mpisign.comm import Comm
from mpisign.config import AdversaryConfig, AlgorithmConfig, Config, RunConfig, parse_byzantine
from mpisign.errors import ConfigError
from mpisign.options import parse
from mpisign.tracking import Tracker, table
from mpisign.train import main
from mpisign.training import train

pytestmark = [
    pytest.mark.usefixtures("global_chance_is_untouched"),
    pytest.mark.filterwarnings("ignore:.*gradient of step 0 is not finite:RuntimeWarning"),  # the attack "nan"
]

LOUD = """
import torch
from mpisign.attacks import Blind


class Loud(Blind):
    '''Inversion, eight times as loud.'''

    def factors(self, shape, chance):
        return torch.full(shape, -8.0)
"""


def learnt(
    attack: str | None = None,
    byzantine: str = "0",
    size: int = 7,
    epochs: int = 8,
    hit_server: bool = False,
    seed: int = 0,
    **algorithm: object,
) -> dict:
    """The summary of a run on digits, by default with Signum at lr 0.002, its best of 0.001, 0.002, 0.004."""
    config = Config(
        algorithm=AlgorithmConfig(**{"lr": 0.002} | algorithm),
        run=RunConfig(epochs=epochs, seed=seed),
        adversary=AdversaryConfig(attack, byzantine, hit_server),
    )
    return simulate(size, lambda comm: train(comm, config, Tracker())[0])[0]


@pytest.fixture
def loud(tmp_path: Path) -> str:
    (tmp_path / "loud.py").write_text(LOUD)
    return f"{tmp_path}/loud.py:Loud"


# What becomes of the training. Digits, 7 workers, 8 epochs of 13 steps; a guess has accuracy 0.1


def test_three_of_seven_inverting_workers_still_learn_digits() -> None:
    # seeds 0 to 5 end between 0.894 and 0.917; without liars 0.936 to 0.969
    assert learnt("invert", "3")["test_accuracy"] >= 0.85


def test_four_of_seven_inverting_workers_do_not_learn_digits() -> None:
    # they are the majority, and climb: seeds 0 to 3 end at 0.100 with a loss above 200
    summary = learnt("invert", "4")
    assert summary["test_accuracy"] < 0.2
    assert summary["test_loss"] > 10


def test_three_of_seven_inverting_workers_break_all_reduced_sgd() -> None:
    # At lr 0.1, within a point of the best of 0.01 … 1. Were all gradients equal, 4 - 3 would leave g/7 and only slow SGD.
    # But each worker has its own samples: what is descended is four losses minus three, which has no lower bound, since
    # the liars' can grow for ever. Seeds 0 to 3: 0.29 to 0.47, loss 14 to 249; lr 0.001 to 0.03: at most 0.43.
    assert learnt(algorithm="sgd", lr=0.1)["test_accuracy"] >= 0.93
    broken = learnt("invert", "3", algorithm="sgd", lr=0.1)
    assert broken["test_accuracy"] < 0.6
    assert broken["test_loss"] > 2.3  # worse than guessing: ln 10


def test_one_loud_worker_breaks_the_mean_and_three_of_them_change_no_bit_of_a_vote(loud: str) -> None:
    # the mean of six g and one -8g points uphill; a power of two, so that only exponents differ before the sign
    assert learnt(loud, "1", algorithm="sgd", lr=0.1)["test_accuracy"] < 0.2
    assert learnt(loud, "3", epochs=2)["checksum"] == learnt("invert", "3", epochs=2)["checksum"]


HARMFUL = ("invert", "omniscient", "inner_product_sign")


@pytest.mark.parametrize("name", [name for name in registry.BUILT_IN["attack"] if name not in HARMFUL])
def test_three_of_seven_do_little_harm_by_any_other_attack(name: str) -> None:
    assert learnt(name, "3")["test_accuracy"] > 0.9  # 0.908 (constant) to 0.936


def test_a_constant_liar_pushes_every_weight_down_that_has_a_gradient() -> None:
    ones, none = registry.load("attack", "constant")(0, (0,), 3)([torch.tensor([-2.0, 3.0]), None], 0)
    assert torch.equal(ones, torch.ones(2))
    assert none is None


def test_silence_and_nan_are_the_same_abstention() -> None:
    silent, nan = learnt("silent", "3", epochs=2), learnt("nan", "3", epochs=2)
    assert silent["checksum"] == nan["checksum"]
    assert (silent["not_finite"], nan["not_finite"]) == (0, 3 * nan["steps"])


# The toy of Bernstein et al. (2019), figure 1: f = |x|²/2 in 1000 dimensions, N(0, 1) on each coordinate


def toy(workers: int, inverting: int) -> list[float]:
    """f after 100, 500 and 1000 steps of lr 0.01, with sign(0) = 0."""
    random = np.random.default_rng(0)
    x = random.standard_normal(1000).astype(np.float32)
    lie = Invert(0, range(inverting), workers)
    losses = []
    for step in range(1000):
        gradients = (x + random.standard_normal((workers, 1000))).astype(np.float32)  # [M, d]
        said = lie([torch.from_numpy(gradients[:inverting])], step)[0]
        ballots = reference.negatives(np.concatenate([said.numpy(), gradients[inverting:]]).ravel())
        verdict, tied = reference.majority(ballots.reshape(workers, 1000), "abstain")
        x = reference.descend(x, verdict, 0.01, 1.0, tied)
        losses.append(float(np.square(x, dtype=np.float64).sum()) / 2)
    return [losses[step - 1] for step in (100, 500, 1000)]


@pytest.mark.parametrize(
    "workers, inverting, expected",
    [
        (1, 0, (140.3, 3.53, 2.94)),
        (3, 0, (105.1, 2.07, 1.92)),
        (27, 0, (74.8, 0.80, 0.74)),
        (27, 3, (77.4, 0.94, 0.92)),
        (27, 9, (104.1, 2.34, 2.27)),
        (27, 12, (207, 15.4, 6.7)),
        (27, 13, (329.7, 111.9, 44.2)),
        (27, 14, (774.7, 4984, 22021)),
    ],
)
def test_the_toy_falls_as_the_specification_says_and_climbs_from_the_half_on(workers, inverting, expected) -> None:
    # §1.9 of the specification, printed to three digits, in float64: bands of 1 %
    assert toy(workers, inverting) == pytest.approx(expected, rel=0.01)


# What is seen of the liars


def test_agreement_separates_liars_from_honest_workers() -> None:
    summary = learnt("invert", "ranks:1,3,4")
    scores = summary["agreement_by_rank"]
    assert summary["byzantine"] == [1, 3, 4]
    assert len(scores) == 7
    honest = [scores[rank] for rank in (0, 2, 5, 6)]
    liars = [scores[rank] for rank in (1, 3, 4)]
    assert min(honest) > 0.65  # 0.73 to 0.76 against 0.44 to 0.45
    assert max(liars) < 0.55
    assert np.mean(scores) == pytest.approx(summary["agreement"])
    assert json.loads(json.dumps(summary)) == summary


def test_the_table_names_the_attack_and_both_sides_agreement() -> None:
    text = table(learnt("invert", "3", epochs=1))
    assert "invert by ranks 4, 5, 6; agreement of honest " in text
    assert " %, of Byzantine " in text
    assert "silent by rank 6; agreement of honest" in table(learnt("silent", "1", epochs=1))
    assert "Byzantine" not in table(learnt("silent", "1", epochs=1))
    assert table(learnt("invert", "1", epochs=1, algorithm="sgd")).count("agreement") == 0
    assert "attack" not in table(learnt(epochs=1))


def test_an_honest_run_names_no_liar_and_scores_all() -> None:
    summary = learnt(size=3, epochs=1)
    assert (summary["attack"], summary["byzantine"]) == (None, [])
    assert all(0.5 < score < 1 for score in summary["agreement_by_rank"])


@pytest.mark.parametrize("kind", [Signum, SGD])
def test_silent_workers_are_not_counted_as_voters(kind: type[DistributedOptimizer]) -> None:
    def body(comm: Comm) -> int:
        model = small_model()
        optimizer = kind(model.parameters(), comm=comm)
        x, y = batch(comm.rank, 0)
        nn.functional.cross_entropy(model(x), y).backward()
        lie = (Silent if comm.rank >= 4 else Honest)(comm.rank, (4, 5, 6), comm.size)
        for p, gradient in zip(model.parameters(), lie([p.grad for p in model.parameters()], 0), strict=True):
            p.grad = gradient
        optimizer.step()
        return optimizer.report.voters

    assert simulate(7, body) == [4] * 7
    assert learnt("silent", "3", epochs=1)["agreement_by_rank"][4:] == [None] * 3


# What each says


def test_stale_replays_its_first_gradients_even_without_data() -> None:
    lie, first = Stale(0, (0,), 3), [torch.tensor([1.0, -2.0]), None]
    lie(first, 0)
    first[0].zero_()  # p.grad may be reused
    lie([torch.ones(2), torch.ones(3)], 1)
    assert [said.tolist() for said in lie([None, None], 2)] == [[1, -2], [1, 1, 1]]


def test_random_workers_draw_anew_at_each_step_and_apart_unless_they_collude() -> None:
    class Together(Random):
        colludes = True

    def said(kind: type[Random], rank: int, step: int) -> list[float]:
        return kind(rank, (1, 2), 3, 5)([torch.zeros(4)], step)[0].tolist()

    assert said(Random, 1, 0) == said(Random, 1, 0)
    assert said(Random, 1, 0) != said(Random, 1, 1)
    assert said(Random, 1, 0) != said(Random, 2, 0)
    assert said(Together, 1, 0) == said(Together, 2, 0) != said(Together, 1, 1)


def test_blind_factors_are_signs_chosen_before_the_gradient_is_seen() -> None:
    lie = Blind(1, (1,), 3)
    factors = lie([torch.ones(1001)], 0)[0]
    assert set(factors.tolist()) == {-1, 1}
    assert abs(factors.mean()) < 0.1  # 3 standard deviations
    gradient = torch.arange(1001.0)
    assert torch.equal(lie([gradient], 0)[0], gradient * factors)


def test_a_label_flip_turns_labels_and_leaves_gradients() -> None:
    lie, gradients = LabelFlip(0, (0,), 3), [torch.ones(2), None]
    assert lie.labels(torch.tensor([0, 3, 9]), 10).tolist() == [9, 6, 0]
    assert lie(gradients, 0) == gradients
    assert Invert(0, (0,), 3).labels(torch.tensor([0, 3]), 10).tolist() == [0, 3]


# Options


def test_the_last_ranks_lie_and_a_share_is_rounded_down() -> None:
    assert byzantine_ranks("0", 7) == ()
    assert byzantine_ranks("6", 7) == tuple(range(1, 7))
    assert byzantine_ranks("0.4", 7) == (5, 6)
    assert len(byzantine_ranks("0.29", 100)) == 29  # 0.29 * 100 is 28.999999999999996 in floats
    assert byzantine_ranks("ranks:3,1", 4) == (1, 3)


def test_the_server_is_spared_last_unless_it_is_to_be_hit() -> None:
    assert byzantine_ranks("3", 7, hit_server=True) == (0, 1, 2)
    assert byzantine_ranks("0.4", 7, hit_server=True) == (0, 1)
    assert learnt("invert", "2", epochs=1)["byzantine"] == [5, 6]
    assert learnt("invert", "2", epochs=1, hit_server=True)["byzantine"] == [0, 1]


def test_flags_and_file_reach_the_settings(tmp_path: Path) -> None:
    assert parse(["--attack", "invert", "--byzantine", "0.4"]).adversary == AdversaryConfig("invert", "0.4")
    hit = parse(["--attack", "invert", "--byzantine", "3", "--hit-server"]).adversary
    assert hit == AdversaryConfig("invert", "3", hit_server=True)
    file = tmp_path / "run.toml"
    file.write_text("[adversary]\nattack = 'nan'\nbyzantine = 'ranks:1'\n")
    assert parse(["--config", str(file)]).adversary == AdversaryConfig("nan", "ranks:1")


@pytest.mark.parametrize(
    "argv, answer",
    [
        ("--attack invert", "--attack invert: by nobody; say by whom, as in --byzantine 3, 0.4 or ranks:1,3"),
        ("--attack invert --byzantine 0.0", "--attack invert: by nobody"),
        ("--byzantine 3", "--byzantine 3: they do nothing yet; say what, as in --attack invert"),
        ("--hit-server", "--hit-server: says which ranks a number or a share means, but --byzantine is 0; leave it out"),
        ("--attack nan --byzantine ranks:1 --hit-server", "--hit-server: says which ranks a number or a share means, but"),
        ("--attack inverted --byzantine 3", "--attack inverted: no such attack (did you mean 'invert'?); known are"),
    ],
)  # fmt: skip
def test_a_mistake_says_what_came_and_what_was_wanted(argv: str, answer: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(argv.split())
    assert str(caught.value).startswith(answer)


@pytest.mark.parametrize("spec", ["1.0", "1.5", "-1", "-0.1", "nan", "inf", "all", "1/3", "9" * 5000, "1,3"])
def test_what_is_no_number_share_or_list_of_ranks_is_refused(spec: str) -> None:
    with pytest.raises(ConfigError, match=r"wanted a number of workers, a share in \[0, 1\), or ranks"):
        parse_byzantine(spec)


@pytest.mark.parametrize(
    "spec", ["ranks:", "ranks:1,", "ranks:1,1", "ranks:-1", "ranks:a", "ranks:1.5", "rank:1", ":1"]
)
def test_malformed_ranks_are_refused(spec: str) -> None:
    with pytest.raises(ConfigError, match=f"--byzantine {spec}: wanted different ranks with commas between"):
        parse_byzantine(spec)


@pytest.mark.parametrize(
    "attack, byzantine, words",
    [
        ("invert", "8", "--byzantine 8: nobody of 7 ranks is honest; wanted at most 6"),
        ("invert", "7", "--byzantine 7: nobody of 7 ranks is honest; wanted at most 6"),
        ("invert", "ranks:0,1,2,3,4,5,6", "--byzantine ranks:0,1,2,3,4,5,6: nobody of 7 ranks is honest"),
        ("invert", "0.1", "--byzantine 0.1: of 7 ranks that is nobody, since a share is rounded down"),
        ("invert", "ranks:1,7", "--byzantine ranks:1,7: no rank 7 here; wanted ranks from 0 to 6"),
        ("json:dumps", "1", "--attack json:dumps: .* is no mpisign.attacks.Attack"),
        ("json:nothing", "1", "--attack json:nothing: json has no nothing"),
    ],
)
def test_liars_that_do_not_exist_are_refused_on_all_ranks(attack: str, byzantine: str, words: str) -> None:
    config = Config(adversary=AdversaryConfig(attack, byzantine))

    def body(comm: Comm) -> str:
        with pytest.raises(ConfigError, match=words) as caught:
            train(comm, config, Tracker())
        assert caught.value.everywhere
        return str(caught.value)

    assert len(set(simulate(7, body))) == 1


@pytest.mark.parametrize("byzantine, hit_server", [("2", False), ("1", True), ("ranks:0", False)])
def test_a_server_that_is_no_worker_is_no_liar_and_makes_no_honest_majority(byzantine: str, hit_server: bool) -> None:
    run = RunConfig(dedicated_server=True)
    config = Config(run=run, adversary=AdversaryConfig("invert", byzantine, hit_server))
    with pytest.raises(ConfigError, match=f"--byzantine {byzantine} with --dedicated-server: rank 0 is no worker"):
        simulate(3, lambda comm: train(comm, config, Tracker()))


# Under mpirun


@pytest.mark.parametrize("attack", ["random", "alie", "omniscient --quarantine"])
def test_mpi_and_the_simulator_agree_on_a_run_with_a_liar(attack: str, mpirun, tmp_path: Path) -> None:
    arguments = ["--steps", "5", "--byzantine", "1", "--attack", *attack.split(), "--output"]
    done = mpirun(3, "-m", "mpisign.train", *arguments, tmp_path / "real")
    assert done.returncode == 0, done.stderr
    assert main(["--simulate", "3", *arguments, str(tmp_path / "simulated")]) == 0
    real, simulated = (json.loads((tmp_path / name / "summary.json").read_text()) for name in ("real", "simulated"))
    for name in ("checksum", "attack", "byzantine", "agreement_by_rank", "bytes_sent", "quarantined"):
        assert real[name] == simulated[name], name


def test_under_mpirun_too_many_liars_are_named_once(mpirun) -> None:
    done = mpirun(3, "-m", "mpisign.train", "--attack", "invert", "--byzantine", "4")
    assert done.returncode == 2
    assert done.stderr.count("mpisign.train: --byzantine 4: nobody of 3 ranks is honest") == 1
    assert "Traceback" not in done.stderr
