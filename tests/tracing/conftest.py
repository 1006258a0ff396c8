from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from apps.organizations.models import Workspace
from tests.factories.api_keys import key_for
from tests.factories.organizations import WorkspaceFactory
from tests.factories.tracing import MULTIPART


@pytest.fixture
def workspace(db: None) -> Workspace:
    return WorkspaceFactory()


@pytest.fixture
def stranger(db: None) -> Workspace:
    """Another workspace."""
    return WorkspaceFactory()


@pytest.fixture(autouse=True)
def objects(settings: Any, tmp_path: Any) -> None:
    """Object storage of the test's own."""
    settings.STORAGES = settings.STORAGES | {
        "default": {
            "BACKEND": "apps.core.objects.files.FileObjectStorage",
            "OPTIONS": {"location": tmp_path / "objects"},
        }
    }


class Api:
    """A client with a key of one workspace."""

    def __init__(self, key: str) -> None:
        self.client = Client(headers={"X-Api-Key": key})

    def get(self, path: str, **query: Any) -> Any:
        return self.client.get(path, query)

    def post(self, path: str, body: Any, **extra: Any) -> Any:
        return self.client.post(path, body, content_type="application/json", **extra)

    def put(self, path: str, body: Any) -> Any:
        return self.client.put(path, body, content_type="application/json")

    def patch(self, path: str, body: Any) -> Any:
        return self.client.patch(path, body, content_type="application/json")

    def delete(self, path: str) -> Any:
        return self.client.delete(path)

    def multipart(self, body: bytes, **headers: str) -> Any:
        return self.client.generic(
            "POST", "/runs/multipart", body, content_type=MULTIPART, headers=headers
        )


@pytest.fixture
def api_of() -> Callable[..., Api]:
    """`api_of(workspace, *scopes)`."""
    return lambda workspace, *scopes: Api(key_for(workspace, *scopes))


@pytest.fixture
def api(api_of: Callable[..., Api], workspace: Workspace) -> Api:
    return api_of(workspace)
