from __future__ import annotations

import pytest

from apps.api_keys import services


@pytest.fixture(autouse=True)
def clear_cache() -> None:
    services.clear_cache()
