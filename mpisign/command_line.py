"""Command lines that say a user's mistake in one line."""

import argparse
from typing import NoReturn

from .errors import ConfigError


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises ConfigError, where argparse prints the usage and exits."""

    def error(self, message: str) -> NoReturn:
        """Raise the error of which argparse knows."""
        raise ConfigError(f"{message.removeprefix('argument ')}; --help lists the options")
