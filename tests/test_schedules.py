import math

import pytest

from mpisign.errors import ConfigError
from mpisign.schedules import factors, parse_schedule


def test_warm_up_rises_on_a_line_and_starts_above_zero() -> None:
    factor = factors("constant", 2.0, 5, 10)
    assert [factor(step) for step in range(12)] == [pytest.approx(min((step + 1) / 10, 1)) for step in range(12)]


def test_without_warm_up_a_constant_schedule_is_one() -> None:
    assert {factors("constant", 0.0, 5, 10)(step) for step in range(50)} == {1.0}


def test_steps_drop_by_ten_at_multiples_or_at_epochs() -> None:
    each, at = factors("step:30", 0.0, 1, 90), factors("step:150,180", 0.0, 1, 200)
    assert [each(epoch) for epoch in (0, 29, 30, 59, 60)] == pytest.approx([1, 1, 0.1, 0.1, 0.01])
    assert [at(epoch) for epoch in (0, 149, 150, 179, 180, 199)] == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01])


def test_cosine_falls_to_nearly_zero() -> None:
    factor = factors("cosine", 0.0, 10, 4)
    assert factor(0) == 1
    assert factor(20) == pytest.approx(0.5)
    assert factor(39) == pytest.approx((1 + math.cos(math.pi * 39 / 40)) / 2)


@pytest.mark.parametrize(
    "spec", ["", "cosin", "cosine:3", "step", "step:0", "step:a", "step:30,20", "step:-1", "step:1,1"]
)
def test_what_is_no_schedule_is_refused(spec: str) -> None:
    with pytest.raises(ConfigError, match="wanted constant, cosine, step:30"):
        parse_schedule(spec)
