import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from mpisign import checksum, seeding, simulate
from mpisign.batches import Batches
from mpisign.comm import Comm
from mpisign.config import (
    SECTIONS,
    AlgorithmConfig,
    Config,
)
from mpisign.errors import ConfigError, DataError, MpisignError
from mpisign.registry import BUILT_IN, load
from mpisign.tracking import Tracker, table
from mpisign.training import train

pytestmark = pytest.mark.usefixtures("global_chance_is_untouched")


def configured(**settings: object) -> Config:
    """A short run on digits; each setting finds its section."""
    settings = {"epochs": 1, "steps": 4} | settings
    return Config(
        **{
            name: kind(**{key: value for key, value in settings.items() if key in kind.__dataclass_fields__})
            for name, kind in SECTIONS.items()
        }
    )


def summaries(size: int, config: Config) -> list[dict]:
    return [summary for summary, _ in simulate(size, lambda comm: train(comm, config, Tracker()))]


def epochs_of_batches(rank_samples: list[int], batches: str) -> list[list[list[list[int]]]]:
    """By rank, epoch and step: the samples of each batch."""
    steps = -(-max(rank_samples) // 4)

    def of(rank: int, samples: int) -> list[list[list[int]]]:
        random = seeding.generator(0, rank, "batches")
        loop = Batches(random, samples, samples, 4, steps, 3, shuffles=batches == "shuffled")
        return [[loop.take().tolist() for _ in range(steps)] for _ in range(loop.epochs)]

    return [of(rank, samples) for rank, samples in enumerate(rank_samples)]


def test_split_batches_are_the_same_in_each_epoch_and_shuffled_ones_are_not() -> None:
    for batches in ("split", "shuffled"):
        for samples, (first, *others) in zip([10, 7], epochs_of_batches([10, 7], batches), strict=True):
            assert [len(batch) for batch in first] == ([4, 4, 2] if samples == 10 else [4, 3, 0])
            for epoch in (first, *others):
                assert sorted(index for batch in epoch for index in batch) == list(range(samples))
            assert [epoch == first for epoch in others] == [batches == "split"] * 2
    assert epochs_of_batches([10, 7], "split")[0][0] == epochs_of_batches([10, 7], "shuffled")[0][0]


def test_sixteen_workers_learn_digits() -> None:
    summary = summaries(16, configured(epochs=20, steps=None, lr=0.002))[0]
    assert summary["test_accuracy"] >= 0.94
    assert summary["ranks"] == 16
    assert 0.5 < summary["agreement"] < 1


@pytest.mark.parametrize("algorithm", ["signum", "signsgd", "sgd"])
def test_all_ranks_report_the_same(algorithm: str) -> None:
    first, *others = summaries(4, configured(algorithm=algorithm))
    shared = ("test_accuracy", "test_loss", "checksum", "steps", "bytes_sent", "bytes_sent_most", "agreement")
    assert all(first[name] == other[name] for other in others for name in shared)


def test_uneven_data_end_without_a_deadlock() -> None:
    class Few(Tracker):
        pass

    def body(comm: Comm) -> tuple[int, float]:
        summary, _ = train(comm, configured(task="few_samples:Few", epochs=2, steps=None, batch_size=10), Few())
        return summary["steps"], summary["test_accuracy"]

    sys.modules["few_samples"] = module = type(sys)("few_samples")
    from mpisign.tasks.base import Dataset
    from mpisign.tasks.digits import Digits

    class FewSamples(Digits):
        def read(self, folder):
            data = super().read(folder)
            return Dataset(data.x_train[:145], data.y_train[:145], data.x_test[:2], data.y_test[:2], 10)

    module.Few = FewSamples
    try:
        # shares of 49, 48, 48 samples: five batches of 10, the last of 9 or 8; 2 test samples on 3 ranks
        assert {steps for steps, _ in simulate(3, body)} == {10}
        # 145 over 14 in batches of 10: ten workers of 11 or 10 have two batches or one; some abstain
        assert {steps for steps, _ in simulate(14, body)} == {4}
    finally:
        del sys.modules["few_samples"]


def test_steps_stop_a_run_whatever_epochs_says() -> None:
    assert summaries(2, configured(epochs=1, steps=100))[0]["steps"] == 100
    assert summaries(2, configured(epochs=50, steps=3))[0]["steps"] == 3


def test_the_seed_decides_and_the_number_of_ranks_too() -> None:
    def checksums(size: int, seed: int) -> str:
        return summaries(size, configured(seed=seed))[0]["checksum"]

    assert checksums(2, 0) == checksums(2, 0)
    assert len({checksums(2, 0), checksums(2, 1), checksums(3, 0)}) == 3


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"algorithm": "signsgd", "momentum": 0.5}, "--momentum 0.5: signsgd has no such setting"),
        ({"algorithm": "sgd", "tie": "plus"}, "--tie plus: sgd has no such setting"),
        ({"algorithm": "sgd", "zero": "plus"}, "--zero plus: sgd has no such setting"),
        ({"nesterov": True}, "--nesterov True: signum has no such setting"),
        ({"topology": "ring"}, "--topology ring: signum has no such setting"),
        ({"message_loss": 0.1}, "--message-loss 0.1: signum needs every message"),
        ({"algorithm": "relaysgd", "topology": "chain:3"}, "3 nodes|2 ranks"),
        ({"algorithm": "json:dumps"}, "is no DistributedOptimizer"),
        ({"algorithm": "json:nothing"}, "json has no nothing"),
        ({"algorithm": "no_such_module:X"}, "can't import no_such_module|no_such_module"),
        ({"model": "vgg11"}, "vgg11"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict, words: str) -> None:
    with pytest.raises(MpisignError, match=words):
        summaries(2, configured(**settings))


def test_missing_data_are_reported_on_all_ranks() -> None:
    def body(comm: Comm) -> str:
        try:
            train(comm, configured(task="mnist", data=Path("nowhere")), Tracker())
        except DataError as error:
            return str(error)
        return ""

    messages = simulate(3, body)
    assert len(set(messages)) == 1
    assert "nowhere" in messages[0]


def test_a_task_that_breaks_while_reading_is_reported_on_all_ranks(monkeypatch) -> None:
    from mpisign.tasks.digits import Digits

    monkeypatch.setattr(Digits, "read", lambda self, folder: 1 / 0)
    with pytest.raises(DataError, match="ZeroDivisionError: division by zero"):
        summaries(3, configured())


def test_dropout_draws_from_each_ranks_own_stream(monkeypatch) -> None:
    from mpisign.tasks import models

    seen: dict[int, list[torch.Tensor]] = {}

    class Noisy(torch.nn.Sequential):
        def forward(self, x):
            if self.training:
                seen.setdefault(len(seen) % 2, []).append(torch.rand(3))
            return super().forward(x)

    plain = models.mlp
    monkeypatch.setattr(models, "mlp", lambda shape, classes: Noisy(plain(shape, classes)))
    simulate(2, lambda comm: train(comm, configured(steps=1), Tracker()))
    draws = [draw for several in seen.values() for draw in several]
    assert len(draws) == 2
    assert not torch.equal(draws[0], draws[1])


@pytest.mark.slow
@pytest.mark.shared_data
def test_mnist_by_vote_comes_within_a_point_of_sgd(shared_data: Path) -> None:
    base = configured(task="mnist", data=shared_data / "mnist.npz", epochs=2, steps=None, batch_size=32)
    voted = summaries(16, base)[0]
    dense = summaries(16, replace(base, algorithm=AlgorithmConfig(algorithm="sgd", lr=0.1)))[0]
    assert voted["parameters"] == 79_510
    assert voted["test_accuracy"] >= 0.95
    assert dense["test_accuracy"] - voted["test_accuracy"] <= 0.01
    assert voted["bytes_sent_float32"] / voted["bytes_sent"] >= 31.5


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize(
    "settings", [{"codec": "qsgd:4"}, {"codec": "topk:0.01", "two_way": True}, {"codec": "float16"}]
)
def test_bytes_are_a_workers_and_float32_in_their_place_is_four_a_coordinate(settings: dict, size: int) -> None:
    summary = summaries(size, configured(algorithm="sgd", **settings))[0]
    assert summary["bytes_sent"] == 4 * summary["bytes_up_per_step"]
    assert summary["bytes_sent_float32"] == 4 * 4 * summary["parameters"]


def test_the_table_names_every_figure() -> None:
    summary = summaries(3, configured())[0]
    text = table(summary)
    for word in ("test accuracy", "test loss", "steps", "seconds", "gradient", "pack", "communicate", "vote", "apply"):
        assert word in text
    for word in ("bytes sent", "as float32", "agreement", summary["checksum"]):
        assert word in text
    assert not any(np.isnan(value) for value in summary["seconds_by_phase"].values())
    assert json.loads(json.dumps(summary)) == summary


def test_the_table_says_how_gradients_travel_where_that_is_not_the_usual() -> None:
    first = table(summaries(2, configured(algorithm="sgd", codec="float16", aggregator="median"))[0])
    assert "sgd, codec float16, aggregator median, 2 ranks" in first
    relayed = table(summaries(2, configured(algorithm="relaysgd", topology="chain", lr=0.05))[0])
    assert "relaysgd, topology chain, 2 ranks" in relayed


@pytest.mark.parametrize(
    "settings, same",
    [
        ({"overlap": True}, True),
        ({"vote": "sharded"}, True),
        ({"schedule": "cosine"}, False),
        ({"warm_up": 1.0}, False),
        ({"trust": 1e-3}, False),
        ({"zero": "abstain"}, False),
    ],
)
def test_what_only_concerns_speed_changes_no_bit_and_the_rest_does(settings: dict, same: bool) -> None:
    plain, changed = (summaries(3, configured(epochs=2, **each))[0]["checksum"] for each in ({}, settings))
    assert (plain == changed) == same


def test_overlap_changes_no_bit_over_several_epochs() -> None:
    # an evaluation comes between a step and the next backward, while gradients of the last one are still there
    runs = [summaries(3, configured(epochs=2, steps=None, overlap=overlap))[0] for overlap in (False, True)]
    assert [run["epochs"] for run in runs] == [2, 2]
    assert runs[0]["checksum"] == runs[1]["checksum"]


def test_a_dedicated_server_counts_and_holds_no_data() -> None:
    summary = summaries(3, configured(epochs=4, steps=None, dedicated_server=True))[0]
    assert summary["agreement_by_rank"][0] is None
    assert summary["test_accuracy"] > 0.8
    with pytest.raises(ConfigError, match="start at least 2 ranks"):
        summaries(1, configured(dedicated_server=True))


def test_overlap_and_an_attack_go_together() -> None:
    lies = {"attack": "invert", "byzantine": "1", "epochs": 2}
    plain, overlapped = (summaries(3, configured(**lies, overlap=overlap))[0]["checksum"] for overlap in (False, True))
    assert plain == overlapped


def test_a_relay_round_a_cycle_is_refused_on_all_ranks() -> None:
    with pytest.raises(MpisignError, match="a relay needs a tree, and Graph ring has cycles"):
        summaries(3, configured(algorithm="relaysgd", topology="ring"))


DECENTRALISED = [name for name in BUILT_IN["algorithm"] if not load("algorithm", name).replicated]


@pytest.mark.parametrize("algorithm", DECENTRALISED)
def test_every_method_of_neighbours_learns_digits_from_a_command_line(algorithm: str) -> None:
    settings = {"lr": 0.02} if algorithm == "gradient_tracking" else {}
    summary = summaries(4, configured(algorithm=algorithm, epochs=3, steps=None, **settings))[0]
    assert summary["test_accuracy_worst"] <= summary["test_accuracy"]
    assert summary["test_accuracy_worst"] > 0.8
    assert "worst worker" in table(summary)


def test_the_model_of_neighbours_is_their_mean() -> None:
    config = configured(algorithm="relaysgd", topology="chain", partition="by_class", epochs=1)
    models = [model for _, model in simulate(3, lambda comm: train(comm, config, Tracker()))]
    summary = summaries(3, config)[0]
    assert summary["consensus_distance"] > 0
    assert len({checksum(model.parameters()) for model in models}) == 1


def test_lost_messages_are_survived_and_change_the_run() -> None:
    settings = {"algorithm": "relaysgd", "topology": "chain", "fill": "counts", "epochs": 3, "steps": None}
    lossy, whole = (summaries(4, configured(**settings, message_loss=loss))[0] for loss in (0.1, 0.0))
    assert lossy["checksum"] != whole["checksum"]
    assert lossy["test_accuracy"] > 0.8


def test_where_all_hold_all_an_epoch_is_one_pass_over_the_data_together() -> None:
    iid, shared = (summaries(3, configured(partition=kind, steps=None))[0] for kind in ("iid", "shared"))
    assert iid["steps"] == shared["steps"]
    assert iid["checksum"] != shared["checksum"]
