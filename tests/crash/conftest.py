from __future__ import annotations

import pytest

from tests.crash.recorder import Recorder


@pytest.fixture(scope="module")
def recorder():
    with Recorder() as recorder:
        yield recorder
