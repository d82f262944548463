"""What a run shows and writes: progress, metrics.jsonl, summary.json and the closing table; rank 0 alone does it."""

import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from .checkpoints import clear, steps
from .errors import ConfigError

Metrics = dict[str, Any]

FILES = ("config.toml", "metrics.jsonl", "events.jsonl", "model.safetensors", "summary.json")
"""What a run writes into its folder; summary.json last, so that its being there says that the run is done."""


class Tracker:
    """Shows and writes nothing: what all ranks but the first have."""

    def begin(self, epochs: int, steps: int, rows: Sequence[Metrics] = (), taken: int = 0) -> None:
        """Training starts: so many epochs of so many steps; or goes on after so many steps, and with these epochs' metrics."""

    def step(self) -> None:
        """A step is done."""

    def epoch(self, metrics: Metrics) -> None:
        """An epoch is done and evaluated."""

    def event(self, event: Metrics) -> None:
        """Something has happened that is no part of training: its `event` says what, its `message` in a sentence."""

    def end(self, summary: Metrics, model: Any = None) -> None:
        """The run is done."""


class Several(Tracker):
    """Tells all of several trackers, in their order."""

    def __init__(self, *trackers: Tracker) -> None:
        self._trackers = trackers

    def begin(self, epochs: int, steps: int, rows: Sequence[Metrics] = (), taken: int = 0) -> None:
        """Training starts."""
        for each in self._trackers:
            each.begin(epochs, steps, rows, taken)

    def step(self) -> None:
        """A step is done."""
        for each in self._trackers:
            each.step()

    def epoch(self, metrics: Metrics) -> None:
        """An epoch is done."""
        for each in self._trackers:
            each.epoch(metrics)

    def event(self, event: Metrics) -> None:
        """Something has happened."""
        for each in self._trackers:
            each.event(event)

    def end(self, summary: Metrics, model: Any = None) -> None:
        """The run is done."""
        for each in self._trackers:
            each.end(summary, model)


class Console(Tracker):
    """Shows a bar or prints a line an epoch, and prints the table at the end; writes into `folder` if given.

    Args:
        folder: receives config.toml, metrics.jsonl (a line an epoch), events.jsonl (a line for each failure and restart),
            model.safetensors and summary.json; made if missing.
        config: the text of config.toml.
        overwrite: whether a folder that holds a run already may be written into.
        resume: whether that run is to be continued.
        bar: whether to show a bar, for a terminal, instead of a line an epoch.
        stream: where to print.

    Raises:
        ConfigError: the folder holds a run, or can't be written.
    """

    def __init__(
        self,
        folder: Path | None = None,
        config: str = "",
        overwrite: bool = False,
        bar: bool = False,
        stream: TextIO | None = None,
        resume: bool = False,
    ) -> None:
        self.folder, self._wants_bar, self.stream = folder, bar, stream or sys.stdout or io.StringIO()
        self._bar: Any = None
        self._epochs = 0
        if folder is None:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._make_room(folder, overwrite, resume)
            (folder / "config.toml").write_text(config)
        except OSError as error:
            raise ConfigError(f"--output {folder} can't be written: {error}") from error

    @staticmethod
    def _make_room(folder: Path, overwrite: bool, resume: bool) -> None:
        """Delete what an earlier run has left, if that is wanted; of one that is continued, that it is done."""
        if resume:
            (folder / "summary.json").unlink(missing_ok=True)
            return
        there = [name for name in FILES if (folder / name).exists()]
        there += ["checkpoints"] if steps(folder / "checkpoints") else []
        if there and not overwrite:
            raise ConfigError(
                f"--output {folder} holds a run ({', '.join(there)}): give another folder, --overwrite, or --resume auto"
            )
        for name in FILES:
            (folder / name).unlink(missing_ok=True)
        clear(folder / "checkpoints")

    def begin(self, epochs: int, steps: int, rows: Sequence[Metrics] = (), taken: int = 0) -> None:
        """Open the bar, and let metrics.jsonl hold these rows."""
        self._epochs = epochs
        if self._wants_bar:
            from tqdm import tqdm

            self._close_bar()
            self._bar = tqdm(total=epochs * steps, initial=taken, unit="step", file=self.stream, leave=False)
        self._write("metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows))

    def event(self, event: Metrics) -> None:
        """Print its message, and append it to events.jsonl."""
        self._say(event["message"])
        if self.folder is not None:
            with (self.folder / "events.jsonl").open("a") as file:
                file.write(json.dumps(event) + "\n")

    def step(self) -> None:
        """Move the bar."""
        if self._bar is not None:
            self._bar.update()

    def epoch(self, metrics: Metrics) -> None:
        """Print or show the metrics, and append them to metrics.jsonl."""
        shown = f"loss {metrics['train_loss']:.4f}  test loss {metrics['test_loss']:.4f}  accuracy {metrics['test_accuracy']:.4f}"
        if self._bar is not None:
            self._bar.set_postfix_str(shown)
        else:
            width = len(str(self._epochs))
            line = f"epoch {metrics['epoch']:{width}d}/{self._epochs}  step {metrics['step']:5d}  {shown}"
            self._say(f"{line}  {metrics['seconds']:6.1f} s")
        if self.folder is not None:
            with (self.folder / "metrics.jsonl").open("a") as file:
                file.write(json.dumps(metrics) + "\n")

    def end(self, summary: Metrics, model: Any = None) -> None:
        """Close the bar, print the table, write the model, and summary.json: its being there says that the run is done."""
        self._close_bar()
        self._say(table(summary))
        if self.folder is not None and model is not None:
            from safetensors.torch import save

            self._write("model.safetensors", save({k: v.contiguous() for k, v in model.state_dict().items()}))
        self._write("summary.json", json.dumps(summary, indent=2) + "\n")

    def _write(self, name: str, content: str | bytes) -> None:
        """Write a file of the folder at once, whoever reads it, and whatever happens meanwhile."""
        if self.folder is None:
            return
        partial = self.folder / f"{name}.part"
        partial.write_bytes(content if isinstance(content, bytes) else content.encode())
        partial.replace(self.folder / name)

    def _close_bar(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _say(self, text: str) -> None:
        try:
            print(text, file=self.stream, flush=True)
        except OSError:
            self.stream = io.StringIO()  # nobody listens any more; the run and its files matter more


def table(summary: Metrics) -> str:
    """The closing table of a run, as text."""
    seconds = summary["seconds_by_phase"]
    where = ", ".join(f"{phase} {value:.2f}" for phase, value in seconds.items())
    steps = max(summary["steps"], 1)
    sent, dense = summary["bytes_sent"], summary["bytes_sent_float32"]
    own_models = summary["test_accuracy_worst"]
    ratio = f", {dense / sent:.1f} times as much" if sent else ""
    rows = [
        (
            "task",
            f"{summary['task']}, {summary['model']}, {summary['parameters']:,} parameters, partition {summary['partition']}",
        ),
        ("algorithm", f"{_method(summary)}, {summary['ranks']} ranks, lr {summary['lr']:g}"),
        ("test accuracy", f"{summary['test_accuracy']:.4f}"),
        ("test loss", f"{summary['test_loss']:.4f}"),
        ("steps", f"{summary['steps']} in {summary['epochs']} epochs"),
        ("seconds", f"{summary['seconds']:.2f} ({1e3 * summary['seconds'] / steps:.2f} ms a step)"),
        ("  by phase", where),
        ("bytes sent", f"{_bytes(sent)} by a worker, {_bytes(sent / steps)} a step"),
        ("  as float32", f"{_bytes(dense)}{ratio}"),
        ("  busiest rank", _bytes(summary["bytes_sent_most"])),
        ("checksum", f"{summary['checksum']}, {'the same on' if own_models is None else 'of the models of'} all ranks"),
    ]
    if own_models is not None:
        rows.insert(3, ("  worst worker", f"{own_models:.4f}"))
        apart = f"{summary['consensus_distance']:.3g}, root of the mean square distance from their mean"
        rows.insert(-1, ("models apart", apart))
    if summary["agreement"] is not None:
        rows.insert(-1, ("agreement", f"{100 * summary['agreement']:.1f} % of a worker's signs are the majority's"))
    if summary["attack"] is not None:
        rows.insert(-1, ("attack", _attack(summary)))
    if summary["quarantined"] is not None:
        rows.insert(-1, ("quarantine", _quarantine(summary)))
    if summary.get("late") is not None:
        rows.insert(-1, ("late", _late(summary["late"])))
    if summary["not_finite"]:
        rows.insert(-1, ("not finite", f"{summary['not_finite']} gradients; their workers abstained"))
    return "\n".join(f"{name:<15} {value}" for name, value in rows)


def _method(summary: Metrics) -> str:
    """The algorithm, with how gradients or models travel and are put together, where that is not the usual."""
    usual = {"codec": "float32", "aggregator": "mean", "topology": None}
    given = [f"{name} {summary[name]}" for name in usual if summary.get(name, usual[name]) != usual[name]]
    return ", ".join([summary["algorithm"], *given])


def _attack(summary: Metrics) -> str:
    """The attack, by whom, and how often each side agreed with the majority."""
    liars = summary["byzantine"]
    who = f"rank{'s' if len(liars) > 1 else ''} {', '.join(map(str, liars))}"
    honest, byzantine = (
        _mean([value for rank, value in enumerate(summary["agreement_by_rank"]) if (rank in liars) == lies])
        for lies in (False, True)
    )
    agree = [
        f"{name} {100 * mean:.1f} %"
        for name, mean in (("honest", honest), ("Byzantine", byzantine))
        if mean is not None
    ]
    return f"{summary['attack']} by {who}" + (f"; agreement of {', of '.join(agree)}" if agree else "")


def _quarantine(summary: Metrics) -> str:
    """Who is excluded since which step."""
    if summary["quarantine_refuted"] is not None:
        return (
            f"lifted for good at step {summary['quarantine_refuted']}: more seemed to lie than can where most are honest; "
            f"data differ between workers, or liars see the ballots"
        )
    return ", ".join(f"rank {rank} since step {step}" for rank, step in summary["quarantined"].items()) or "nobody"


def _late(late: Metrics) -> str:
    """Who missed how many votes."""
    if not late["missed"]:
        return "nobody"
    each = ", ".join(f"rank {rank} in {missed} votes" for rank, missed in late["missed"].items())
    return f"{each}; {late['deadlines']} deadlines, {late['seconds']:.2f} s in all"


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean of those that are there."""
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if there else None


def _bytes(count: float) -> str:
    """A number of bytes with a decimal unit.

    >>> _bytes(9960), _bytes(12)
    ('9.96 kB', '12 B')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.3g} {unit}"
        count /= 1000
    raise AssertionError
