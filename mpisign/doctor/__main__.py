"""What a bug report needs, and what would make training go wrong here: `python -m mpisign.doctor`, also under mpirun.

Exit code 1 where training would go wrong. Whatever is missing or broken, the rest is still printed.
"""

import argparse
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

from .. import __version__
from ..environment import Launch, launched
from .gpus import examine_gpus
from .launchers import describe_slurm, examine_mpirun, examine_open_mpi, examine_wheels
from .mpi import examine_mpi, import_mpi
from .packages import examine_cache, examine_packages
from .ranks import examine_crowding, examine_places, place_of
from .report import Report, count


def main(argv: Sequence[str] | None = None) -> int:
    """Print the report on rank 0 and return its exit code, on the others 0. All ranks call it: MPI starts and ends."""
    argparse.ArgumentParser("python -m mpisign.doctor", description=__doc__).parse_args(argv)
    launch = launched()
    report = Report()
    _describe_python(report, launch)
    mpi = import_mpi(report)
    places = examine_mpi(report, mpi, launch) if mpi else [place_of(launch, platform.node())]
    if not places or launch.rank > 0:  # the other ranks of MPI, or the other ones of n singletons
        if mpi is None:  # rank 0 may have one, and wait for this rank
            print(f"mpisign.doctor, rank {launch.rank} on {platform.node()}: {report.problems}", file=sys.stderr)
        return 0  # Open MPI's mpirun would end rank 0 before it has printed
    vendor, release = mpi.get_vendor() if mpi else ("", ())
    describe_slurm(report, vendor)
    examine_wheels(report)
    examine_mpirun(report, vendor, launch)
    if vendor == "Open MPI":
        examine_open_mpi(report, release, launch)
    else:
        examine_crowding(report, vendor, places)
    examine_places(report, places)
    examine_packages(report)
    examine_gpus(report, places)
    examine_cache(report)
    print(report, flush=True)
    return report.exit_code


def _describe_python(report: Report, launch: Launch) -> None:
    report.fact("mpisign", f"{__version__}, {Path(__file__).parents[1]}")
    report.fact("python", f"{platform.python_version()}, {sys.executable}")
    report.fact("platform", f"{platform.platform()}, {count(os.cpu_count() or 1, 'core')}")
    report.fact("launcher", launch.title if launch.launcher == "none" else f"{launch.title}, {launch.size} ranks")


if __name__ == "__main__":
    sys.exit(main())
