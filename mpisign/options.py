"""Settings from outside and back: the command line and the TOML file, both made from the fields of `config`."""

import argparse
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import Field, asdict, fields
from pathlib import Path
from typing import Any, get_args

from . import __version__, registry
from .command_line import Parser
from .config import FIELDS, SECTION_OF, SECTIONS, Config, as_path, checked, kind_of
from .errors import ConfigError


def parse(argv: Sequence[str] | None = None) -> Config:
    """Return the settings of a command line, by default this process's: flags over --config's file over defaults.

    `--help` and `--version` print and raise SystemExit(0). Errors: ConfigError, of one line, for everything else that
    is not a run.
    """
    flags = _read_flags(sys.argv[1:] if argv is None else argv)
    file = flags.pop("config", None)
    return _build({**(_read_toml(file) if file else {}), **flags})


def to_toml(config: Config) -> str:
    """Return the TOML text that `parse(["--config", file])` reads back as an equal Config; None is left out."""
    import tomli_w

    return tomli_w.dumps({section: _plain(values) for section, values in asdict(config).items()})


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: str(value) if isinstance(value, Path) else value for name, value in values.items() if value is not None
    }


def _build(values: Mapping[str, Any]) -> Config:
    chosen: dict[str, Any] = {
        section: kind(**{entry.name: values[entry.name] for entry in fields(kind) if entry.name in values})
        for section, kind in SECTIONS.items()
    }
    return Config(**chosen)


# Flags


_EXAMPLES = """examples:
  mpirun -n 4 python -m mpisign.train --task digits --epochs 5
  python -m mpisign.train --simulate 16 --partition dirichlet:0.3
  mpirun -n 8 python -m mpisign.train --algorithm relaysgd --topology chain --partition dirichlet:0.1
  mpirun -n 4 python -m mpisign.train --config run.toml --lr 1e-3
  mpirun -n 4 python -m mpisign.train --algorithm my_file.py:Mine

A TOML file has the tables [problem], [algorithm], [network], [run], [adversary] and [failures] with the names of the flags
(batch_size = 64).
"""


def _read_flags(argv: Sequence[str]) -> dict[str, Any]:
    """Return what the flags set, and nothing else."""
    parser = _parser()
    given, unknown = parser.parse_known_args([_dashed(argument) for argument in argv])
    if unknown:
        raise ConfigError(_unknown_argument(unknown[0]))
    return {name: _from_flag(name, text) for name, text in vars(given).items()}


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        "python -m mpisign.train",
        usage="mpirun -n N python -m mpisign.train [options]",
        description="Train a model on all ranks of an MPI job: by votes of one bit a coordinate, or by models that are relayed.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("--config", metavar="FILE", help="TOML file to read first; flags override it")
    parser.add_argument("--version", action="version", version=f"mpisign {__version__}", help="show the version")
    for section, kind in SECTIONS.items():
        group = parser.add_argument_group(section)
        for entry in fields(kind):
            _add_flag(group, entry)
    return parser


def _add_flag(group: Any, entry: Field[Any]) -> None:
    kind, _ = kind_of(entry)
    options: dict[str, Any] = {"dest": entry.name, "help": _remark(entry)}
    if kind is bool:
        options["action"] = argparse.BooleanOptionalAction
    else:
        if entry.metadata["alone"]:
            options |= {"nargs": "?", "const": entry.metadata["alone"]}
        options["metavar"] = entry.metadata["metavar"] or _METAVAR.get(kind) or "|".join(get_args(kind))
    group.add_argument(entry.metadata["flag"], **options)


_METAVAR: dict[Any, str] = {int: "N", float: "X", Path: "DIR"}


def _remark(entry: Field[Any]) -> str:
    default: Any = entry.default
    if default is None:
        return str(entry.metadata["remark"])
    return f"{entry.metadata['remark']} (default: {'no' if default is False else default})"


def _dashed(argument: str) -> str:
    """Accept --batch_size for --batch-size."""
    flag, equals, value = argument.partition("=")
    return flag.replace("_", "-") + equals + value if flag.startswith("--") else argument


def _unknown_argument(argument: str) -> str:
    flag = argument.partition("=")[0]
    if not flag.startswith("-"):
        return f"{argument}: unexpected; every setting is a flag, as in --task digits"
    return f"{flag}: no such option{registry.nearest(flag, _flags())}; --help lists the options"


def _flags() -> list[str]:
    return ["--config", "--help", "--version", *(entry.metadata["flag"] for entry in FIELDS.values())]


def _from_flag(name: str, text: Any) -> Any:
    """Return the checked value of a flag, which argparse hands over as text (or as the truth of a --no-flag)."""
    where = f"--{name.replace('_', '-')} {_shown(text)}"
    if name == "config":
        return as_path(text, where)
    kind, _ = kind_of(FIELDS[name])
    return checked(FIELDS[name], _number(kind, text) if kind in (int, float) else text, where)


def _shown(text: Any) -> Any:
    """Return a value as it was typed, or quoted where one would not see it."""
    return repr(text) if text == "" or (isinstance(text, str) and not text.isprintable()) else text


def _number(kind: type[int] | type[float], text: str) -> int | float | str:
    """Return the number, or the text itself where it is none: the check then says so."""
    try:
        return kind(text)
    except ValueError:
        return text


# TOML


def _read_toml(file: Path) -> dict[str, Any]:
    """Return what the file sets, whether it stands in its table or at the top."""
    try:
        document = tomllib.loads(file.read_text("utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"--config {file}: can't read it ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{file}: not a TOML file ({error})") from None
    found: dict[str, Any] = {}
    for key, value in _pairs(document, file):
        if key in found:
            raise ConfigError(f"{file}: {key} is set twice, in [{SECTION_OF[key]}] and at the top; keep one")
        found[key] = checked(FIELDS[key], value, f"{file}: {key} = {_as_toml(value)}")
    return found


def _pairs(document: dict[str, Any], file: Path) -> Iterator[tuple[str, Any]]:
    """Yield all keys with their values, after a check that each exists and stands where it may."""
    for key, value in document.items():
        if isinstance(value, dict):
            yield from _pairs_of_table(key, value, file)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            raise ConfigError(f"{file}: [[{key}]] makes a list of tables; wanted one, [{key}]")
        elif key in FIELDS:
            yield key, value
        elif key in SECTIONS:
            raise ConfigError(f"{file}: {key} = {_as_toml(value)}: {key} is a table; write [{key}] and its keys below")
        else:
            raise ConfigError(f"{file}: no such key {key!r}{registry.nearest(key, FIELDS)}")


def _pairs_of_table(section: str, table: dict[str, Any], file: Path) -> Iterator[tuple[str, Any]]:
    if section not in SECTIONS:
        wanted = ", ".join(f"[{known}]" for known in SECTIONS)
        raise ConfigError(f"{file}: no such table [{section}]{registry.nearest(section, SECTIONS)}; wanted {wanted}")
    for key, value in table.items():
        if key not in FIELDS:
            raise ConfigError(f"{file}: no such key {key!r} in [{section}]{registry.nearest(key, FIELDS)}")
        if SECTION_OF[key] != section:
            raise ConfigError(f"{file}: {key} stands in [{section}]; move it to [{SECTION_OF[key]}]")
        yield key, value


def _as_toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)
