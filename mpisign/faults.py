"""Faults on purpose, to see what becomes of a run: `--inject kill:rank=3,step=17`.

Only the standard library is imported, since the command line is checked by this.
"""

import json
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .errors import ConfigError

KINDS = {
    "kill": ("rank", "step", "after"),
    "stop": ("rank", "step", "after", "for"),
    "slow": ("rank", "factor"),
    "nan": ("rank", "step"),
    "drop": ("rank", "share"),
}
"""What each kind may be told: see `Fault`."""

_WANTED = (
    "wanted kill:rank=3,step=17 or kill:rank=3,after=1.5, stop:rank=2,step=9,for=2, slow:rank=1,factor=5, nan:rank=1,step=4 or "
    "drop:rank=1,share=0.1, with ; between several, and any for a rank or step by chance"
)


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        kind: kill (SIGKILL), stop (SIGSTOP), slow (its gradients take `factor` times as long), nan (one gradient), or drop
            (each of its gradients is lost with probability `share`; it abstains then).
        rank: whose; None: by chance.
        step: before the update of this step, counted from 0; None: by chance, or see `after`.
        after: seconds since training began, whatever the rank does then; None: at a step.
        lasts: seconds that a stopped rank stays so; inf: for ever.
        factor: of slow.
        share: of drop.
    """

    kind: str
    rank: int | None = None
    step: int | None = None
    after: float | None = None
    lasts: float = math.inf
    factor: float = 1.0
    share: float = 0.0


def parse_faults(spec: str, where: str = "") -> tuple[Fault, ...]:
    """Return the faults that a text names.

    Errors: ConfigError, which begins with `where`, for any other text.

    >>> parse_faults("kill:rank=3,step=17;stop:rank=any,after=1.5,for=2")[1]
    Fault(kind='stop', rank=None, step=None, after=1.5, lasts=2.0, factor=1.0, share=0.0)
    """
    return tuple(_parsed(one, f"{where or f'--inject {spec}'}") for one in spec.split(";"))


def _parsed(text: str, where: str) -> Fault:
    kind, _, rest = text.strip().partition(":")
    told = dict(part.partition("=")[::2] for part in rest.split(",")) if rest else {}
    fits = kind in KINDS and set(told) <= set(KINDS[kind]) and "rank" in told and len(told) == rest.count(",") + 1
    try:
        if not fits or ("step" in told) + ("after" in told) != ("step" in KINDS[kind]):
            raise ValueError
        fault = Fault(
            kind,
            _number(told["rank"]),
            _number(told.get("step", "any")),
            float(told["after"]) if "after" in told else None,
            float(told.get("for", "inf")),
            float(told.get("factor", 1)),
            float(told.get("share", 0)),
        )
    except ValueError:
        raise ConfigError(f"{where}: {_WANTED}") from None
    inside = fault.lasts > 0 and 1 <= fault.factor < 1e6 and 0 <= fault.share < 1 and 0 <= (fault.after or 0) < 1e6
    if not inside:
        raise ConfigError(
            f"{where}: wanted times of at least 0, for above 0, a factor of at least 1 and a share in [0, 1)"
        )
    return fault


def _number(text: str) -> int | None:
    if text == "any":
        return None
    if not text.isdecimal():
        raise ValueError
    return int(text)


class Faults:
    """The faults of one run, as one of its ranks suffers them.

    Args:
        faults: all of the run's.
        rank: this one, by the number it has at the start.
        size: ranks at the start.
        steps: of the run, where steps by chance are drawn from.
        seed: names the draws.
        log: a file that receives a line before each fault, by whom it strikes.
        die: ends this rank.

    Errors: ConfigError for a rank that doesn't exist.
    """

    def __init__(
        self,
        faults: Iterable[Fault],
        rank: int,
        size: int,
        steps: int,
        seed: int = 0,
        log: Path | None = None,
        die: Callable[[], Any] | None = None,
    ) -> None:
        chance = random.Random(f"faults {seed}")  # noqa: S311 - no secret
        free = list(range(size))
        self._mine: list[Fault] = []
        for fault in faults:
            if fault.rank is not None and fault.rank >= size:
                raise ConfigError(f"--inject {fault.kind}:rank={fault.rank}: ranks are 0 to {size - 1}")
            who = chance.choice(free or list(range(size))) if fault.rank is None else fault.rank
            free = [other for other in free if other != who]
            step = chance.randrange(max(steps, 1)) if fault.step is None else fault.step
            if who == rank:
                self._mine.append(replace(fault, rank=who, step=step))
        self._rank, self._log, self._die = rank, log, die or _kill
        self._chance = random.Random(f"drops {seed} {rank}")  # noqa: S311
        self._begun = False

    def begin(self) -> None:
        """Training begins: seconds count from here."""
        for fault in self._mine if not self._begun else []:
            if fault.after is not None:
                timer = threading.Timer(fault.after, self._strike, [fault])
                timer.daemon = True
                timer.start()
        self._begun = True

    def before_update(self, step: int, parameters: Sequence[Any], seconds: float) -> None:
        """Do what is due after the gradients of this step, which took so many seconds."""
        for fault in list(self._mine):
            if fault.kind == "slow":
                time.sleep((fault.factor - 1) * seconds)
            elif fault.kind == "drop":
                if self._chance.random() < fault.share:
                    for p in parameters:
                        p.grad = None
            elif fault.after is None and step == fault.step:
                self._mine.remove(fault)  # once, also where the step is repeated
                if fault.kind == "nan":
                    self._write(fault)
                    for p in parameters:
                        if p.grad is not None:
                            p.grad.fill_(math.nan)
                else:
                    self._strike(fault)

    def _strike(self, fault: Fault) -> None:
        self._write(fault)
        if fault.kind == "kill":
            self._die()
        elif fault.kind == "stop":
            if fault.lasts < math.inf:  # somebody else must wake this process
                subprocess.Popen(["sh", "-c", f"sleep {fault.lasts}; kill -CONT {os.getpid()}"])
            os.kill(os.getpid(), signal.SIGSTOP)

    def _write(self, fault: Fault) -> None:
        message = f"rank {self._rank}: {fault.kind}, as --inject says"
        print(f"mpisign: {message}", file=sys.stderr, flush=True)
        if self._log is not None:
            with self._log.open("a") as file:
                event = {"event": "injected", "kind": fault.kind, "rank": self._rank, "time": time.time()}
                event |= {"step": fault.step} if fault.after is None else {}
                file.write(json.dumps(event | {"message": message}) + "\n")


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
