"""All trajectories of the authors' simulators, met by the optimizers to rounding."""

import functools

import golden
import pytest

from mpisign import simulate
from mpisign.quadratics import RandomQuadratics

pytestmark = pytest.mark.usefixtures("global_chance_is_untouched")


@functools.cache
def problem(n: int, heterogeneity: float) -> RandomQuadratics:
    return RandomQuadratics(n, heterogeneity=heterogeneity, mu=0.5)


ALL = [name if name in golden.SHORT else pytest.param(name, marks=pytest.mark.slow) for name in golden.METHODS]


@pytest.mark.parametrize("heterogeneity", [pytest.param(0.1, marks=pytest.mark.slow), 1.0])
@pytest.mark.parametrize("name", ALL)
def test_four_workers_follow_the_reference(name: str, heterogeneity: float) -> None:
    run = golden.named(name, 4, heterogeneity)
    found = simulate(4, golden.replay, run, problem(4, heterogeneity))
    golden.assert_same(run, found[0])
    assert len(set(map(tuple, found))) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", golden.METHODS)
def test_sixteen_workers_follow_the_reference(name: str) -> None:
    run = golden.named(name, 16, 0.1)
    golden.assert_same(run, simulate(16, golden.replay, run, problem(16, 0.1))[0])


def test_no_run_of_the_file_is_left_out() -> None:
    golden.named("all-reduce", 4, 0.1)  # or skip
    assert {run["name"] for run in golden.runs()} == set(golden.METHODS)
    assert {(run["n"], run["zeta2"]) for run in golden.runs()} == {(4, 0.1), (4, 1.0), (16, 0.1)}
    assert len(golden.runs()) == 3 * len(golden.METHODS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, lr, published",
    [
        ("RelaySGD chain", 0.1, ("6.512e-02", "1.215e-04")),
        ("RelaySGD tree", 0.1, ("1.672e-02", "8.229e-07")),
        ("DP-SGD ring", 0.1, ("4.189e-04", "3.927e-04")),
        ("SGP 2 rounds", 0.1, ("8.662e-06", "3.991e-06")),
        ("gradient tracking ring", 0.01, ("1.796e-01", "5.682e-03")),
        ("RelaySGD/Grad chain", 0.05, ("1.011e-03", "2.998e-06")),
    ],
)
def test_sixteen_heterogeneous_workers_are_where_the_specification_says(name, lr, published) -> None:
    run = {"name": name, "lr": lr, "kwargs": {}, "err": {"100": 0, "400": 0}}
    found = simulate(16, golden.replay, run, problem(16, 1.0))[0]
    assert tuple(f"{error:.3e}" for error in found) == published  # as many digits as there are
