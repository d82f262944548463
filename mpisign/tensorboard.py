"""A run for TensorBoard to watch: `--log tensorboard` writes scalars of each epoch, and events as text. Needs tensorboardX."""

from pathlib import Path
from typing import Any

from .errors import EnvironmentProblem
from .tracking import Metrics, Tracker, table

_PLACES = ("epoch", "step")  # say where a row belongs, and are no curves


class TensorBoard(Tracker):
    """Writes what TensorBoard reads; rank 0 alone has one.

    Steps that are done again after a failure or --resume replace those before.

    Args:
        folder: receives the files, once training starts.
        continues: whether the run goes on; if not, files of an earlier one are taken away.

    Raises:
        EnvironmentProblem: tensorboardX is missing.
    """

    def __init__(self, folder: Path, continues: bool = False) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ModuleNotFoundError as error:
            raise EnvironmentProblem(
                f"--log tensorboard: no {error.name} here: pip install 'mpisign[tensorboard]'"
            ) from None
        self._open, self._folder, self._continues = SummaryWriter, folder, continues
        self._writer: Any = None
        self._step = 0

    def begin(self, epochs: int, steps: int, rows: Any = (), taken: int = 0) -> None:
        """Open a file; what was said of steps after those `taken` no longer counts."""
        if self._writer is not None:
            self._writer.close()
        elif not self._continues:
            for old in self._folder.glob("events.out.tfevents.*"):
                old.unlink()
        self._step = taken
        self._writer = self._open(str(self._folder), purge_step=taken + 1)

    def epoch(self, metrics: Metrics) -> None:
        """Write each number of an epoch by its name in metrics.jsonl."""
        self._step = metrics["step"]
        for name, value in metrics.items():
            if isinstance(value, int | float) and name not in _PLACES:
                self._writer.add_scalar(name, value, self._step)
        self._writer.flush()

    def event(self, event: Metrics) -> None:
        """Write its message as text."""
        self._say(event["event"], event["message"], event.get("step", self._step))

    def end(self, summary: Metrics, model: Any = None) -> None:
        """Write the closing table, and close the file."""
        self._say("summary", f"```\n{table(summary)}\n```", self._step)
        self._writer.close()

    def _say(self, name: str, text: str, step: int) -> None:
        if self._writer is None:  # a rank that has become the first one tells of the failure before it goes on
            self._writer = self._open(str(self._folder))
        self._writer.add_text(name, text, step)
        self._writer.flush()
