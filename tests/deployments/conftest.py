from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deployments.repositories import Repository


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter, unlike `tmp_path`."""
    with tempfile.TemporaryDirectory(prefix="slipway-repositories-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@pytest.fixture
def repository(open_folder: Path) -> Repository:
    return Repository(open_folder / "repository")
