"""The command line: `python -m mpisign.report runs/* -o report.html`, and `--png DIR` for its pictures as files."""

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

from ..command_line import Parser
from ..errors import ConfigError, EnvironmentProblem, MpisignError


def main(argv: Sequence[str] | None = None) -> int:
    """Write a report and return the exit code: 0, or 2 for a mistake of the user's, said in one line."""
    try:
        given = _parser().parse_args(argv)
        for path in _write(given.run, given.output, given.png, given.overwrite):
            print(path)
    except MpisignError as error:
        print(f"mpisign.report: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        "python -m mpisign.report",
        description="Draw one page about runs, done or under way: it needs no network, and can be sent by mail.",
        allow_abbrev=False,
    )
    parser.add_argument("run", nargs="+", type=Path, metavar="RUN", help="folder of a run, its --output")
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("report.html"), metavar="FILE", help="the page (default: report.html)"
    )
    parser.add_argument("--png", type=Path, metavar="DIR", help="folder for the pictures, each as a file too")
    parser.add_argument("--overwrite", action="store_true", help="replace files that are there")
    return parser


def _write(folders: Sequence[Path], output: Path, png: Path | None, overwrite: bool) -> list[Path]:
    """Write all files and return where the page, and the folder of pictures, are."""
    if importlib.util.find_spec("matplotlib") is None:
        raise EnvironmentProblem("no matplotlib here, which draws the pictures: pip install 'mpisign[report]'")
    from . import named, page, read

    _check_free(output, overwrite)
    report = page([read(folder, name) for name, folder in named(folders).items()])
    files = {} if png is None else {png / f"{picture.key}.png": picture for picture in report.pictures}
    for file in files:
        _check_free(file, overwrite)
    try:
        output.write_text(report.html(), "utf-8")
        if png is not None:
            png.mkdir(parents=True, exist_ok=True)
        for file, picture in files.items():
            file.write_bytes(picture.png())
    except OSError as error:
        raise ConfigError(f"{error.filename or output}: can't write it ({error.strerror})") from None
    return [output, *([png] if png is not None else [])]


def _check_free(file: Path, overwrite: bool) -> None:
    if file.exists() and not overwrite:
        raise ConfigError(f"{file} is there already: give another name, or --overwrite")


if __name__ == "__main__":
    sys.exit(main())
