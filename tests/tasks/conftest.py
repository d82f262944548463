import os
from pathlib import Path

import pytest


@pytest.fixture
def shared_data() -> Path:
    """The folder of real data sets; where it is missing the test is skipped."""
    folder = Path(os.environ.get("MPISIGN_SHARED_DATA", Path(__file__).parents[3] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no data sets in {folder}; MPISIGN_SHARED_DATA can name another folder")
    return folder
