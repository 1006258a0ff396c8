from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.installation import Installation

Install = Callable[..., Installation]


@pytest.fixture
def install() -> Iterator[Install]:
    """Makes installations in folders that end with the test, and so do they."""
    made: list[Installation] = []
    folder = Path(tempfile.mkdtemp(prefix="slipway-house-"))
    folder.chmod(0o711)

    def make(name: str = "data", **variables: str) -> Installation:
        made.append(Installation(folder / name, **variables))
        return made[-1]

    yield make
    for installation in made:
        installation.kill_everything()
    shutil.rmtree(folder)
