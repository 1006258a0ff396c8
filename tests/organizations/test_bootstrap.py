import json
from dataclasses import replace
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from apps.api_keys.models import ApiKey
from apps.api_keys.services import caller_for_key
from apps.organizations.models import Organization, User, Workspace

pytestmark = pytest.mark.django_db


def bootstrap(*options):
    out = StringIO()
    call_command(
        "bootstrap", "--organization", "Acme", "--email", "Ann@Example.com", "--json", *options,
        stdout=out,
    )  # fmt: skip
    return json.loads(out.getvalue())


@pytest.fixture(autouse=True)
def configure_settings(settings, tmp_path):
    settings.DATA_DIR = tmp_path
    settings.BASE_URL = "https://slipway.example"
    settings.API_BASE_URL = "https://api.slipway.example"


def test_bootstrap_creates_organization_workspace_owner_and_key():
    created = bootstrap("--password", "correct horse")

    organization = Organization.objects.get(name="Acme")
    workspace = organization.workspaces.get()
    owner = User.objects.get()
    assert created == {
        "organization_id": str(organization.pk),
        "workspace_id": str(workspace.pk),
        "api_key": created["api_key"],
        "api_url": "https://api.slipway.example/api/v1",
        "ui_url": f"https://slipway.example/o/{workspace.pk}",
    }
    assert owner.email == "ann@example.com"
    assert owner.check_password("correct horse")
    assert organization.memberships.get().role == "owner"
    assert caller_for_key(secret=created["api_key"]).workspace_id == workspace.pk


def test_repeated_bootstrap_returns_the_same_objects(tmp_path):
    first = bootstrap("--password", "correct horse")

    assert bootstrap() == first
    assert Workspace.objects.count() == 1
    assert User.objects.get().check_password("correct horse")
    assert [path.stat().st_mode & 0o777 for path in (tmp_path / "secrets").iterdir()] == [0o600]


def test_bootstrap_issues_a_new_key_on_request_or_if_the_stored_one_is_revoked():
    first = bootstrap()["api_key"]

    second = bootstrap("--new-key")["api_key"]
    assert second != first
    assert caller_for_key(secret=first) == _with_key_of(caller_for_key(secret=second), first)

    ApiKey.objects.all().delete()
    assert bootstrap()["api_key"] not in {first, second}


def _with_key_of(caller, secret):
    return replace(caller, key_id=caller_for_key(secret=secret).key_id)


def test_organization_key_creates_workspaces_and_reads_members_and_the_audit_log(client):
    workspace_key = bootstrap()["api_key"]
    created = bootstrap("--scope", "organization")
    headers = {"X-Api-Key": created["api_key"], "X-Organization-Id": created["organization_id"]}

    responses = [
        client.post(
            "/workspaces",
            {"display_name": "Second"},
            content_type="application/json",
            headers=headers,
        ),
        client.get("/orgs/current/members", headers=headers),
        client.get("/audit-logs", headers=headers),
    ]

    assert [response.status_code for response in responses] == [200, 200, 200]
    assert bootstrap("--scope", "organization") == created
    assert bootstrap()["api_key"] == workspace_key != created["api_key"]


def test_bootstrap_rejects_an_invalid_address_and_creates_nothing():
    with pytest.raises(CommandError, match="not an e-mail address"):
        call_command("bootstrap", "--organization", "Acme", "--email", "invalid")

    assert not Organization.objects.exists()


def test_organization_numbers_are_permanent():
    first, second = (Organization.objects.create(name=name) for name in ("A", "B"))
    first.refresh_from_db()
    second.refresh_from_db()

    assert second.number == first.number + 1
