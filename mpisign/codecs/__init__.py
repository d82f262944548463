"""How a flat float32 vector travels when it is averaged; a codec knows no communicator."""

from collections.abc import Callable

from .. import registry
from ..errors import ParameterError
from .base import Codec
from .error_feedback import ErrorFeedback

__all__ = ["Codec", "ErrorFeedback", "build"]


def build(codec: str | Callable[[int], Codec], numel: int) -> Codec:
    """Return the codec that `--codec` calls so ("qsgd:4", "my_file.py:Mine:3"), or `codec(numel)`, for so long vectors.

    Errors: ConfigError for a name that doesn't exist, ParameterError for arguments that it doesn't take.
    """
    arguments: list[int | float | str] = []
    kind = codec
    if isinstance(codec, str):
        name, arguments = registry.split("codec", codec)
        kind = registry.load("codec", name)
    try:
        built = kind(numel, *arguments)  # type: ignore[operator]
    except (TypeError, ValueError) as error:
        raise ParameterError(f"codec {codec}: {error}") from error
    if not isinstance(built, Codec):
        raise ParameterError(f"codec {codec}: wanted a mpisign.codecs.Codec, got {built!r}")
    return built
