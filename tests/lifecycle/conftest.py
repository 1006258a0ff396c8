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
    """Return a function that creates an installation; all are killed and deleted after the test."""
    installations: list[Installation] = []
    folder = Path(tempfile.mkdtemp(prefix="slipway-lifecycle-"))
    folder.chmod(0o711)

    def create(name: str = "data", **variables: str) -> Installation:
        installations.append(Installation(folder / name, **variables))
        return installations[-1]

    yield create
    for installation in installations:
        installation.kill_everything()
    shutil.rmtree(folder)
