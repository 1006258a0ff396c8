"""The public Python SDK's client of the running platform."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from langsmith import Client

from tests.live import Live


@pytest.fixture(scope="module")
def client(live: Live) -> Iterator[Client]:
    client = Client(api_url=live.api_url, api_key=live.api_key)
    yield client
    client.cleanup()
