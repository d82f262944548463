"""Which classes each worker of a run held, dealt again from its settings where its data are at hand."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import registry
from ..config import as_path, parse_partition
from ..errors import ConfigError, DataError
from ..tasks.partition import partition
from .runs import Run


@dataclass(frozen=True, eq=False)
class Parts:
    """The labels of all training samples, and each worker's samples; worker 0 is rank `first`."""

    labels: npt.NDArray[np.int64]
    of_workers: list[npt.NDArray[np.int64]]
    first: int


def parts(run: Run, known: dict[Any, Any]) -> Parts:
    """Return who held what.

    Args:
        run: the run.
        known: labels by (task, folder), of runs before; changes.

    Errors: DataError with a reason, where they can't be dealt again: things from outside are not run, and data are not fetched.
    """
    task, spec = run.settings["task"], run.settings["partition"]
    if run.ranks is None:
        raise DataError("nothing says how many ranks there are, before the run has ended")
    if task not in registry.BUILT_IN["task"]:
        raise DataError(f"the task {task} is none of the built-in ones")
    try:
        if parse_partition(spec)[0] not in registry.BUILT_IN["partition"]:
            raise DataError(f"the partition {spec} is none of the built-in ones")
        folder = run.settings["data"]
        if (task, folder) not in known:
            path = as_path(folder, "data") if folder else None
            known[task, folder] = registry.load("task", task)().read(path).y_train
        labels, first = known[task, folder], int(run.settings["dedicated_server"])
        return Parts(labels, partition(spec, labels, run.ranks - first, run.settings["seed"]), first)
    except (ConfigError, ValueError) as error:
        raise DataError(str(error).splitlines()[0]) from None
