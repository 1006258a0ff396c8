from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.test import Client

from apps.organizations.models import Workspace
from apps.trace_store.postgres import partitions
from apps.tracing.models import Project
from apps.tracing.services import ensure_project
from tests.console.conftest import create_workspace_user, signed_in
from tests.factories.api_keys import key_for
from tests.factories.organizations import WorkspaceFactory
from tests.factories.tracing import MULTIPART


@pytest.fixture
def other_workspace(db: None) -> Workspace:
    """Another workspace."""
    return WorkspaceFactory()


@pytest.fixture(autouse=True)
def objects(settings: Any, tmp_path: Any) -> None:
    """Use an object storage that belongs to the test."""
    settings.STORAGES = settings.STORAGES | {
        "default": {
            "BACKEND": "apps.core.object_storage.files.FileObjectStorage",
            "OPTIONS": {"location": tmp_path / "objects"},
        }
    }


@pytest.fixture
def project(workspace: Workspace) -> Project:
    return ensure_project(workspace.pk, "default")


@pytest.fixture
def page(workspace: Workspace) -> Client:
    """A browser in which an editor of the workspace is signed in."""
    return signed_in(create_workspace_user(workspace, "editor"))


@pytest.fixture
def forget_known_partitions() -> Iterator[None]:
    """Clear the cache of known partitions, because the test's partitions are rolled back."""
    partitions._covered_until.clear()
    yield
    partitions._covered_until.clear()


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
def make_api() -> Callable[..., Api]:
    """Return a function `make_api(workspace, *scopes)`."""
    return lambda workspace, *scopes: Api(key_for(workspace, *scopes))


@pytest.fixture
def api(make_api: Callable[..., Api], workspace: Workspace) -> Api:
    return make_api(workspace)
