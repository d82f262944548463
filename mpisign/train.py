"""The command line: `mpirun -n 16 python -m mpisign.train`, or `python -m mpisign.train --simulate 16`."""

import io
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from . import devices, environment
from .config import Config
from .errors import ConfigError, EnvironmentProblem, MpisignError, RankFailure
from .faults import parse_faults
from .options import parse, to_toml

if TYPE_CHECKING:
    from .comm import Comm, MPIComm, awareness
    from .comm.guard import Guard, Unguarded


_PATIENCE = 2.0
"""Seconds that others leave to rank 0 to say that a file can't be read: it may be there on rank 0's host, and not on theirs."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one training job as one of its ranks; return the exit code: 0, or 2 for a mistake of the user's.

    Under mpirun every rank runs this. Rank 0 speaks for all.
    """
    launch = environment.launched()
    speaks = launch.rank == 0
    try:
        config = _settings(argv, launch)
        if config.run.simulate is not None:
            return _simulated(config, config.run.simulate)
    except MpisignError as error:
        if speaks:
            return _report(error)
        if not isinstance(error.__cause__, OSError):
            return 0  # the same on all: a launcher might end the job before rank 0 has spoken
        time.sleep(_PATIENCE)
        return _report(error, f", rank {launch.rank}")
    try:
        started = _start_mpi(config, launch)
    except RankFailure as error:  # of a process that was to join others: they go on without it
        os._exit(_report(error))
    except MpisignError as error:
        return _report(error) if speaks else 0
    return _under_mpi(config, *started)


def _report(error: MpisignError, who: str = "") -> int:
    print(f"mpisign.train{who}: {error}", file=sys.stderr, flush=True)
    return error.code


def _settings(argv: Sequence[str] | None, launch: environment.Launch) -> Config:
    with nullcontext() if launch.rank == 0 else redirect_stdout(io.StringIO()):  # --help once, not once a rank
        config = parse(argv)
    environment.limit_threads(launch)
    if config.failures.respawn and not environment.outlives_ranks():
        raise ConfigError("--respawn: no process can join here; use Open MPI 5 and mpirun --with-ft ulfm")
    if config.run.simulate is not None and launch.size > 1:
        raise ConfigError(
            f"--simulate {config.run.simulate} runs all ranks in one process, but {launch.title} started "
            f"{launch.size} processes: run it without mpirun"
        )
    return config


def _start_mpi(
    config: Config, launch: environment.Launch
) -> "tuple[MPIComm, Guard, devices.Choice, awareness.Answer | None]":
    """Start MPI, with a guard over this rank; what is wrong is wrong on all ranks alike."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):  # until the guard stands
        signal.signal(number, lambda number, _: os._exit(128 + number))
    from .comm import awareness, world
    from .comm.guard import Guard

    choice, answer = (
        devices.choose(config.run.device, launch),
        None,
    )  # before MPI_Init, which may open the current device
    if config.run.cuda_aware != "no" and not choice.problem and not launch.local_rank:  # one rank a host
        answer = awareness.consult(choice.name)
    failures = config.failures
    with environment.starting_within(failures.timeout, launch.rank <= 1):
        comm: MPIComm = world(failures.quorum, patience=failures.patience, late=failures.late, timeout=failures.timeout)
    environment.check_world(comm.founders, launch)
    guard = Guard(comm.rank, comm.size, comm.abort, failures.timeout, config.run.output is not None, comm.rescue)
    if comm.rank == 0:
        for problem in [*environment.problems(launch), *filter(None, [choice.remark])]:
            print(f"mpisign.train: {problem}", file=sys.stderr)
        if comm.size == 1:
            print("1 rank, nobody to vote with: for more, mpirun -n 16 python -m mpisign.train, or --simulate 16")
    return comm, guard, choice, answer


def _under_mpi(
    config: Config,
    comm: "MPIComm",
    guard: "Guard",
    choice: devices.Choice,
    answer: "awareness.Answer | None",
) -> int:
    """Train; what goes wrong on this rank alone is the guard's, which ends the others."""
    try:
        if config.run.device != "cpu":
            config = _on_devices(comm, config, choice, answer)
        run(comm, config, guard)
    except MpisignError as error:
        if not error.everywhere:
            raise
        return comm.leave(_report(error) if error.speaks else 0)
    return comm.leave(0)


def _on_devices(comm: "Comm", config: Config, choice: devices.Choice, answer: "awareness.Answer | None") -> Config:
    """Raise on all ranks what is wrong with any one's device; return the settings with what the probe says in its place."""
    from .comm import awareness

    if getattr(comm, "joined", False):  # the others have agreed already
        choice.check()
        return config
    comm.together(choice.check, EnvironmentProblem)
    wanted = config.run.cuda_aware
    if wanted == "no":
        return config
    try:
        comm.together(lambda: answer is None or awareness.decide(wanted, answer), EnvironmentProblem)
    except EnvironmentProblem as problem:
        if wanted == "yes":
            raise
        if comm.rank == 0:
            print(f"mpisign.train: {problem}", file=sys.stderr)
        return replace(config, run=replace(config.run, cuda_aware="no"))
    return replace(config, run=replace(config.run, cuda_aware="yes"))


def _simulated(config: Config, ranks: int) -> int:
    import torch

    devices.choose(config.run.device, environment.launched()).check()
    from .comm import simulate

    faults = parse_faults(config.failures.inject) if config.failures.inject else ()
    if any(fault.kind == "stop" or fault.after is not None for fault in faults):
        raise ConfigError(f"--inject {config.failures.inject}: simulated ranks know no time; name a step, and no stop")
    torch.set_num_threads(1)
    simulate(ranks, run, config)
    return 0


def run(comm: "Comm", config: Config, guard: "Unguarded | None" = None) -> dict[str, Any]:
    """Train on all ranks together, show and write what comes of it, and return the figures."""
    import torch

    from . import kernels
    from .tensorboard import TensorBoard
    from .tracking import Console, Several, Tracker
    from .training import train

    if not comm.joined:  # the others are in the middle of a run
        with suppress(RankFailure):  # the next verb tells of it again, and `train` goes on with those that are left
            summary = comm.together(lambda: _done(config) if comm.rank == 0 else None)
            if comm.bcast(torch.tensor([int(summary is not None)])).item():
                comm.all_know()
                if comm.rank == 0:
                    print(f"mpisign.train: the run in {config.run.output} is done, nothing is left to do")
                return summary or {}
            if getattr(comm, "local_rank", comm.rank) == 0:
                kernels.warm_up()  # alone: the others then find Numba's cache filled
            comm.barrier()
    kernels.warm_up()
    if config.run.device != "cpu":
        kernels.warm_up(devices.current(config.run.device))
    # Open MPI's mpirun gives every rank a terminal of its own, whatever its own output is
    bar = sys.stdout is not None and sys.stdout.isatty() and environment.launched().launcher == "none"
    output, overwrite = config.run.output, config.run.overwrite

    def tracker(continues: bool) -> Tracker:
        goes_on = continues or config.run.resume is not None
        logs = [TensorBoard(output / "tensorboard", goes_on)] if config.run.log and output else []
        return Several(Console(output, to_toml(config), overwrite, bar, resume=goes_on), *logs)

    return train(comm, config, tracker, guard, [sys.executable, "-m", "mpisign.train", *sys.argv[1:]])[0]


def _done(config: Config) -> dict[str, Any] | None:
    """Return the figures of a run that is to be resumed, but has come to its end; else None."""
    output = config.run.output
    if output is None or config.run.resume is None or not (output / "summary.json").exists():
        return None
    from .resuming import check_fits

    check_fits(config, (output / "config.toml").read_text())
    before = parse(["--config", str(output / "config.toml")])
    if (before.run.epochs, before.run.steps) != (config.run.epochs, config.run.steps):
        return None
    summary: dict[str, Any] = json.loads((output / "summary.json").read_text())
    return summary


if __name__ == "__main__":
    sys.exit(main())
