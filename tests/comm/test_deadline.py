"""Deadlines follow what is measured, and workers that are late again and again pause longer."""

import pytest

from mpisign.comm.attendance import FORGOTTEN, Attendance
from mpisign.comm.deadline import FLOOR, KNOWN, WINDOW, Deadline


def after(waits: list[float], **settings: float) -> float:
    deadline = Deadline(**settings)
    for wait in waits:
        deadline.note(wait)
    return deadline.seconds


def test_the_first_rounds_get_a_generous_deadline() -> None:
    assert after([0.01] * (KNOWN - 1), first=12.0) == 12.0
    assert after([0.01] * KNOWN, first=12.0) == FLOOR


def test_a_deadline_is_the_median_and_some_times_the_spread() -> None:
    waits = [1.0, 1.2, 0.8, 1.1, 0.9, 1.0, 1.2, 0.8, 1.0]  # distances from 1: 0 0 0 .1 .1 .2 .2 .2 .2
    assert after(waits, patience=5.0) == pytest.approx(1.0 + 5 * 0.1)
    assert after(waits, patience=30.0) == pytest.approx(1.0 + 30 * 0.1)


def test_a_few_long_waits_change_little_and_old_ones_are_forgotten() -> None:
    usual = [0.9, 1.0, 1.1] * 10
    assert after([*usual, 60.0, 60.0]) == pytest.approx(after(usual))
    assert after([60.0] * 30 + [1.0] * WINDOW) == 1.0


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_who_is_late_comes_in_again_at_once_and_the_next_time_after_a_pause() -> None:
    clock = Clock()
    attendance = Attendance([1, 2, 3], 3.0, clock)
    pauses = []
    for _ in range(5):
        attendance.close_without([2], 0.5)
        assert (attendance.away, attendance.present) == ((2,), {1, 3})
        assert attendance.returning() == []
        attendance.heard(2)
        late_at = clock.now
        while not attendance.returning():
            clock.now += 0.25
        pauses.append(clock.now - late_at)
        attendance.let_in(2)
        assert attendance.away == ()
    assert pauses == [0.0, 1.0, 2.0, 3.0, 3.0]
    clock.now += 2 * FORGOTTEN
    attendance.close_without([2], 0.5)
    attendance.heard(2)
    assert attendance.returning() == [2]


def test_the_list_tells_who_missed_what() -> None:
    clock = Clock()
    attendance = Attendance([1, 2, 3], 60.0, clock)
    attendance.close_without([3, 1], 0.5)
    attendance.vote_is_over()
    clock.now += 2
    attendance.heard(1)
    attendance.let_in(1)
    attendance.vote_is_over()
    assert attendance.counts() == ([1, 0, 2], [1, 0, 0])
    assert (attendance.deadlines, attendance.seconds) == (1, 0.5)
    assert [(news["event"], news["rank"], news["seconds"]) for news in attendance.news()] == [
        ("late", 1, 0.5),
        ("late", 3, 0.5),
        ("returned", 1, 2.0),
    ]
    assert attendance.news() == []
