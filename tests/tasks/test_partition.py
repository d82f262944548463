import subprocess
import sys
import warnings
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpisign.errors import ConfigError
from mpisign.tasks.partition import by_class, dirichlet, iid, partition

LABELS = np.repeat(np.arange(10), 100)


def assert_even_cover(parts, samples, workers):
    assert len(parts) == workers
    assert all(part.dtype == np.int64 for part in parts)
    sizes = [len(part) for part in parts]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(samples))


@st.composite
def cases(draw):
    workers = draw(st.integers(1, 33))
    samples = draw(st.integers(workers, 300))
    classes = draw(st.integers(1, 12))
    seed = draw(st.integers(0, 2**32 - 1))
    return np.random.default_rng(seed).integers(0, classes, samples), workers, seed


@pytest.mark.parametrize("deal", [iid, by_class])
@settings(deadline=None, max_examples=60)
@given(cases())
def test_each_sample_goes_to_one_worker_and_sizes_are_even(deal, case):
    labels, workers, seed = case
    assert_even_cover(deal(labels, workers, seed), len(labels), workers)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 33), st.integers(1, 5), st.integers(10, 20), st.integers(0, 2**32 - 1), st.floats(3, 100))
def test_a_dirichlet_deal_gives_each_sample_to_one_worker_and_is_even(workers, classes, share, seed, alpha):
    """With fewer samples of a class or a smaller alpha a deal may rightly be refused."""
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(classes), share * workers))
    assert_even_cover(dirichlet(labels, workers, seed, alpha), len(labels), workers)


def test_classes_with_hardly_a_sample_for_each_worker_may_be_refused(monkeypatch):
    """The cuts are rounded down, so of 2 samples the first worker gets one only if half of the class is his."""
    monkeypatch.setattr("mpisign.tasks.partition.ATTEMPTS", 200)
    labels = np.array([6, 2, 0, 2, 3, 6, 3, 0, 2, 4, 6, 5, 7, 1, 7, 0, 4, 2, 1, 5, 2])
    with pytest.raises(ConfigError, match="200 deals, and none gave each of 10 workers 1 or more of 21 samples"):
        dirichlet(labels, 10, 2, 11.0)


@pytest.mark.parametrize("spec", ["iid", "by_class", "dirichlet:0.5"])
def test_the_seed_alone_decides_who_gets_what(spec):
    first, again, other = (np.concatenate(partition(spec, LABELS, 7, seed)) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("spec", ["iid", "by_class", "dirichlet:0.5"])
def test_dealing_touches_no_global_generator(spec):
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    partition(spec, LABELS, 4, 0)
    assert np.array_equal(np.random.get_state()[1], before)  # noqa: NPY002


@pytest.mark.parametrize("spec", ["iid", "by_class", "dirichlet:0.5"])
def test_as_many_workers_as_samples_get_one_each_and_one_more_is_refused(spec):
    labels = np.arange(12) % 3
    assert [len(part) for part in partition(spec, labels, 12, 0)] == [1] * 12
    for workers in (13, 0):
        with pytest.raises(ConfigError, match=f"{workers} workers .* wanted labels .* 1 to N workers"):
            partition(spec, labels, workers, 0)


def test_iid_workers_see_all_classes():
    assert all(len(np.unique(LABELS[part])) == 10 for part in iid(LABELS, 4, 0))


def test_by_class_gives_ten_workers_one_class_each():
    parts = by_class(LABELS, 10, 0)
    assert [np.unique(LABELS[part]).tolist() for part in parts] == [[label] for label in range(10)]
    assert not np.array_equal(parts[0], np.sort(parts[0]))  # shuffled within the class


@pytest.mark.parametrize(
    "alpha, low, high",
    [(1.0, 0.36, 0.40), (0.1, 0.64, 0.66), (0.01, 0.78, 0.85)],
)
def test_the_distance_to_uniform_is_that_of_the_papers_runs(alpha, low, high):
    """10 x 5000 labels, 16 workers, the seeds of the paper's runs: distances measured on its own code."""
    labels = np.repeat(np.arange(10), 5000)
    for seed in (101, 102, 103):
        shares = [np.bincount(labels[part], minlength=10) / len(part) for part in dirichlet(labels, 16, seed, alpha)]
        assert low < np.mean([np.abs(share - 0.1).sum() / 2 for share in shares]) < high


@pytest.mark.parametrize(
    "workers, seed, checksum",
    [
        (12, 101, 2562546437),
        (7, 5, 589157864),
        (4, 103, 2982534840),
        (10, 101, 3312150288),
    ],  # 4, 10: someone is just full
)
def test_the_indices_are_those_of_the_papers_code(workers, seed, checksum):
    """Checksums of what the code of Vogels et al. deals, evened out by array_split."""
    parts = dirichlet(np.arange(200) % 5, workers, seed, 0.5)
    assert zlib.crc32(np.concatenate(parts).astype("<i8").tobytes()) == checksum


def test_large_alpha_is_nearly_even_and_small_alpha_is_nearly_one_class():
    labels = np.repeat(np.arange(10), 500)
    even = [np.bincount(labels[part], minlength=10).max() for part in dirichlet(labels, 10, 0, 1000.0)]
    odd = [np.bincount(labels[part], minlength=10).max() for part in dirichlet(labels, 10, 0, 0.01)]
    assert max(even) < 75  # of 500, 50 expected
    assert np.mean(odd) > 250


def test_a_worker_alone_in_its_group_gets_what_is_left():
    labels = np.array([0] * 21 + [1])  # its group of two lacks class 1 for most seeds
    for seed in range(10):
        assert_even_cover(dirichlet(labels, 11, seed, 100.0), 22, 11)


@pytest.mark.parametrize("alpha", [0.01, 1e-5, 1e-300])
def test_a_deal_that_never_succeeds_is_an_error_not_an_endless_loop(alpha, monkeypatch):
    monkeypatch.setattr("mpisign.tasks.partition.ATTEMPTS", 200)
    with pytest.raises(ConfigError, match=r"200 deals, and none .* of 1000 samples in 1 classes; take fewer workers"):
        dirichlet(np.zeros(1000, np.int64), 10, 0, alpha)


def test_unusable_proportions_are_drawn_again_and_deal_everything():
    """At α = 0.001 about half of all proportions are 0, and RandomState draws NaN now and then."""
    warnings.simplefilter("error")  # pytest restores it
    for seed in range(5):
        assert_even_cover(dirichlet(LABELS, 10, seed, 0.001), 1000, 10)


def test_a_seed_too_large_for_the_papers_stream_is_refused():
    with pytest.raises(ConfigError, match="seed 4294967296"):
        dirichlet(LABELS, 2, 2**32, 1.0)


def test_a_partition_of_ones_own_is_loaded_from_a_file(tmp_path):
    (tmp_path / "dealer.py").write_text(
        "def alternate(labels, workers, seed, argument=None):\n"
        "    return [list(range(worker, len(labels), workers)) for worker in range(workers)]\n"
        "def forget(labels, workers, seed, argument=None):\n"
        "    return [[int(argument)] for worker in range(workers)]\n"
    )
    parts = partition(f"{tmp_path}/dealer.py:alternate", LABELS[:5], 2, 0)
    assert [part.tolist() for part in parts] == [[0, 2, 4], [1, 3]]
    with pytest.raises(ConfigError, match=r"gave 2 parts with 2 indices: wanted 2 parts in which each of 0\.\.4"):
        partition(f"{tmp_path}/dealer.py:forget:4", LABELS[:5], 2, 0)


def test_partitions_need_no_torch():
    script = "import sys; import mpisign.tasks.partition; print('torch' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"
