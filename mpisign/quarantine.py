"""Excludes workers whose agreement with the majority is impossible for an honest one, at a stated rate of false alarms."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

BET = 1.9
"""λ, below 2, so that no step takes all. Large, since the share of thousands of coordinates hardly varies."""


class Quarantine:
    """A test of each worker at each step, by betting against its honesty (Ville 1939; Waudby-Smith, Ramdas 2023).

        M ← (M + w)·(1 + λ(½ − a)),   w = 1/((t+1)(t+2)),   excluded from the first step with M ≥ n/rate on

    a is the share of its t-th ballot's signs that equal the verdict's, t = 0, 1 …; a step in which it doesn't vote counts
    for nothing. The capital of 1 is staked bit by bit, Σw = 1, so that a worker that is honest for long and then turns is
    found too. Every rank computes this from the same scores, with the same bits.

    **False alarms.** Null hypothesis: given the past, an honest worker's expected a is at least ½. M and what is not yet
    staked are then a non-negative supermartingale that starts at 1, so that the chance of M ≥ n/rate at any step of a
    run, however long, is at most rate/n (Ville's inequality), and the chance that any of the n workers is ever excluded
    by mistake at most `rate`: whatever the dependence between the coordinates of a step, and between workers. The null
    hypothesis holds where honest workers are the majority, draw from the same data, and the others lie without knowing
    the ballots; a momentum makes steps dependent, which the thousands of coordinates of a step make up for, and a model
    of a few that all move alike would not (tests/test_quarantine.py measures it).

    **What it can't find.** Liars that agree in half of the coordinates or more: `random`, `constant`, `blind`, `stale`,
    `label_flip`. A worker's own vote counts in the verdict, so that of pure noise 7 workers agree in 66 %: liars who
    invert gradients that are nearly noise look honest, and do little harm. And who knows the ballots can win each
    coordinate by a hair: the honest workers then disagree with the verdict, and are the ones that look guilty.

    **So never more than (m−1)//2 are excluded**, of m workers that have ever voted: at most so many lie where the honest are
    the majority. If more stand accused, at least one of the assumptions is false, and with it all evidence: all are let in
    again, for good (`refuted`).

    Args:
        workers: n.
        rate: in (0, 1), the chance that an honest worker is ever excluded.

    Attributes:
        excluded: bool[n].
        since: {worker: step} of those that are excluded.
        refuted: the step at which more were accused than can lie; None before.
    """

    def __init__(self, workers: int, rate: float = 0.001) -> None:
        if not 0 < rate < 1:
            raise ValueError(f"the rate of false alarms must be above 0 and below 1, got {rate!r}")
        self.workers, self.rate = workers, rate
        self.excluded: npt.NDArray[np.bool_] = np.zeros(workers, np.bool_)
        self.since: dict[int, int] = {}
        self.refuted: int | None = None
        self._evidence, self._shares, self._ballots = np.zeros(workers), np.zeros(workers), np.zeros(workers)

    def observe(self, scores: npt.NDArray[np.int64], step: int) -> None:
        """Take int64[n, 2], in how many coordinates each ballot differs from the verdict, of how many (`Vote.scores`)."""
        voted = scores[:, 1] > 0
        share = np.where(voted, 1 - scores[:, 0] / np.maximum(scores[:, 1], 1), 0)
        stake = 1 / ((self._ballots + 1) * (self._ballots + 2))
        grown = (self._evidence + stake) * (1 + BET * (0.5 - share))
        self._evidence = np.where(voted & ~self.excluded, grown, self._evidence)
        self._shares, self._ballots = self._shares + share, self._ballots + voted
        if self.refuted is None:
            self._judge(step)

    def _judge(self, step: int) -> None:
        accused = self._evidence >= self.workers / self.rate
        voting = max(int((self._ballots > 0).sum()), 1)
        if accused.sum() > (voting - 1) // 2:
            self.excluded[:], self.since, self.refuted = False, {}, step
            warnings.warn(
                f"step {step}: {accused.sum()} of {voting} workers disagree with the majority as no honest one would, "
                f"which is more than can lie where most are honest: data differ between workers, or liars see the ballots. "
                f"The quarantine lets all in again, for good",
                RuntimeWarning,
                stacklevel=2,
            )
            return
        self.since |= dict.fromkeys(np.flatnonzero(accused & ~self.excluded).tolist(), step)
        self.excluded[:] = accused

    @property
    def agreement(self) -> list[float | None]:
        """Each worker's mean share of agreement so far, None where it never voted."""
        pairs = zip(self._shares.tolist(), self._ballots.tolist(), strict=True)
        return [shares / ballots if ballots else None for shares, ballots in pairs]

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs to go on, as plain lists."""
        return {
            "evidence": self._evidence.tolist(),
            "shares": self._shares.tolist(),
            "ballots": self._ballots.tolist(),
            "since": dict(self.since),
            "refuted": self.refuted,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave, of as many workers."""
        if len(state["evidence"]) != self.workers:
            raise ValueError(f"a quarantine of {len(state['evidence'])} workers can't go on with {self.workers}")
        self._evidence, self._shares, self._ballots = (
            np.array(state[name], np.float64) for name in ("evidence", "shares", "ballots")
        )
        self.since, self.refuted = dict(state["since"]), state["refuted"]
        self.excluded[:] = False
        self.excluded[list(self.since)] = True


def regrouped(state: dict[str, Any], places: Sequence[int]) -> dict[str, Any]:
    """Return a quarantine's `state_dict` for other workers: those that had these numbers then, -1 for new ones."""
    rows = {
        name: [state[name][place] if place >= 0 else 0.0 for place in places]
        for name in ("evidence", "shares", "ballots")
    }
    since = {worker: state["since"][place] for worker, place in enumerate(places) if place in state["since"]}
    return {**rows, "since": since, "refuted": state["refuted"]}
