"""The key of a provider does not follow a changed address, whose server would receive it."""

from __future__ import annotations

import pytest

from apps.organizations.models import WorkspaceSecret
from apps.organizations.services.workspaces import secret_value, set_secrets
from apps.providers.catalogue import PROVIDERS
from apps.providers.errors import KeyBoundToAddress
from tests.console.conftest import create_workspace_user, signed_in
from tests.tracing.conftest import api, make_api, objects

__all__ = ["api", "make_api", "objects"]

pytestmark = pytest.mark.django_db
EVIL = "https://evil.example"
PATH = "/workspaces/current/secrets"


@pytest.mark.parametrize("provider", PROVIDERS.values(), ids=PROVIDERS.keys())
@pytest.mark.parametrize("before", [None, "https://models.example/v1"])
@pytest.mark.parametrize(
    "after",
    [EVIL, "https://models.example:444/v1", "http://models.example/v1", "//evil", "x y"],
)
def test_address_does_not_move_without_the_key(workspace, provider, before, after):
    values = {provider.key_name: "sk-secret", provider.base_url_name: before}
    set_secrets(workspace_id=workspace.pk, values=values)

    with pytest.raises(KeyBoundToAddress, match=provider.key_name):
        set_secrets(workspace_id=workspace.pk, values={provider.base_url_name: after})

    assert secret_value(workspace.pk, provider.base_url_name) == before


def test_key_does_not_fall_back_to_the_address_of_the_provider(workspace):
    values = {"OPENAI_API_KEY": "sk-of-the-proxy", "OPENAI_BASE_URL": "https://proxy.example"}
    set_secrets(workspace_id=workspace.pk, values=values)

    with pytest.raises(KeyBoundToAddress):
        set_secrets(workspace_id=workspace.pk, values={"OPENAI_BASE_URL": None})


@pytest.mark.parametrize(
    "values",
    [
        {"OPENAI_BASE_URL": EVIL, "OPENAI_API_KEY": "another"},
        {"OPENAI_BASE_URL": EVIL, "OPENAI_API_KEY": None},
        {"OPENAI_BASE_URL": "https://API.openai.com:443/v2"},
        {"OPENAI_API_KEY": "another"},
        {"OTHER": "x"},
    ],
)
def test_changes_that_send_the_stored_key_nowhere_else_are_made(workspace, values):
    set_secrets(workspace_id=workspace.pk, values={"OPENAI_API_KEY": "sk-secret"})

    set_secrets(workspace_id=workspace.pk, values=values)

    for name, value in values.items():
        assert secret_value(workspace.pk, name) == value


def test_address_without_a_key_is_set_and_deleted(workspace):
    name = "OPENAI_COMPATIBLE_BASE_URL"
    set_secrets(workspace_id=workspace.pk, values={name: "https://models.example"})
    set_secrets(workspace_id=workspace.pk, values={name: None})

    assert not WorkspaceSecret.objects.for_workspace(workspace.pk).exists()


def test_api_reports_which_key_to_send_again(api, workspace):
    api.post(PATH, [{"key": "OPENAI_API_KEY", "value": "sk-secret"}])

    moved = api.post(PATH, [{"key": "OPENAI_BASE_URL", "value": EVIL}])
    put = api.put(f"{PATH}/OPENAI_BASE_URL", {"value": EVIL})

    for response in (moved, put):
        assert response.status_code == 409
        assert response.json()["code"] == "key_bound_to_address"
        assert response.json()["errors"] == [{"secret": "OPENAI_API_KEY"}]
        assert "sk-secret" not in response.content.decode()


def test_pages_refuse_the_move_and_the_deletion(workspace):
    page = signed_in(create_workspace_user(workspace, "admin"))
    url = f"/o/{workspace.pk}/settings/secrets"
    values = {"OPENAI_API_KEY": "sk-secret", "OPENAI_BASE_URL": "https://proxy.example"}
    set_secrets(workspace_id=workspace.pk, values=values)

    changed = page.post(url, {"key": "OPENAI_BASE_URL", "value": EVIL})
    deleted = page.post(f"{url}/delete", {"key": "OPENAI_BASE_URL"}, follow=True)

    assert changed.status_code == 422
    for response in (changed, deleted):
        assert "belongs to the present address" in response.content.decode()
    assert secret_value(workspace.pk, "OPENAI_BASE_URL") == "https://proxy.example"
