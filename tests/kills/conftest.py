"""One installation for all that is killed: a start costs more than all of a test's kills."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.installation import Installation


@pytest.fixture(scope="session")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    folder: Path = tmp_path_factory.mktemp("kills")
    installation = Installation(folder / "data")
    installation.start()
    installation.wait_until_ready()
    yield installation
    assert installation.stop() == 0


@pytest.fixture(scope="session")
def key(installation: Installation) -> str:
    return installation.bootstrap()["api_key"]
