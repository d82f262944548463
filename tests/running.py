"""Short runs on digits for tests."""

from pathlib import Path
from typing import Any

from mpisign.config import SECTIONS, Config

STEPS = 14


def configured(folder: Path | None, **settings: Any) -> Config:
    """Two epochs on digits, of ten steps with three or four ranks, cut short; each setting finds its section."""
    settings = {"epochs": 2, "steps": STEPS, "batch_size": 48, "output": folder, "schedule": "cosine"} | settings
    sections = {
        section: kind(**{name: value for name, value in settings.items() if name in kind.__dataclass_fields__})
        for section, kind in SECTIONS.items()
    }
    return Config(**sections)
