"""Workspace secrets: encryption, write-only API, re-encryption."""

from io import StringIO

import pytest
from cryptography.fernet import Fernet
from django.apps import apps
from django.core.management import CommandError, call_command
from django.db import models

from apps.audit.models import Entry
from apps.organizations.encrypted_columns import ENCRYPTED_COLUMNS
from apps.organizations.models import WorkspaceSecret
from apps.organizations.services import workspaces
from tests.factories.organizations import WorkspaceFactory

pytestmark = pytest.mark.django_db

# Binary columns without encrypted values.
UNENCRYPTED_COLUMNS = {
    "agent_server": {"blob", "batches"},
    "api_keys": {
        *("digest", "previous_digest", "device_digest", "user_code_digest"),
        *("refresh_digest", "previous_refresh_digest"),
    },
    "feedback": {"token_hash"},
    "ingest": {"body"},
    "organizations": {"digest", "nonce"},
}


def test_the_value_is_not_in_the_database_nor_in_the_log(workspace):
    workspaces.set_secrets(workspace_id=workspace.pk, values={"KEY": "sk-clear"})

    row = WorkspaceSecret.objects.for_workspace(workspace).get()
    assert b"sk-clear" not in bytes(row.value)
    assert workspaces.secret_value(workspace.pk, "KEY") == "sk-clear"
    recorded = [(entry.action, entry.after) for entry in Entry.objects.filter(target_kind="secret")]
    assert recorded == [("secret.set", {"names": ["KEY"]})]


def test_null_deletes_a_secret_and_keeps_the_others(workspace):
    workspaces.set_secrets(workspace_id=workspace.pk, values={"A": "1", "B": "2"})
    workspaces.set_secrets(workspace_id=workspace.pk, values={"A": None, "B": "3", "C": "4"})

    values = {key: workspaces.secret_value(workspace.pk, key) for key in "ABC"}
    assert values == {"A": None, "B": "3", "C": "4"}


def test_secret_belongs_to_one_workspace(workspace):
    workspaces.set_secrets(workspace_id=workspace.pk, values={"A": "1"})

    assert workspaces.secret_value(WorkspaceFactory().pk, "A") is None


def test_api_lists_names_and_accepts_values(workspace, owner, member, client_for):
    path = "/workspaces/current/secrets"
    body = [{"key": "OPENAI_API_KEY", "value": "sk-clear"}, {"key": "OTHER", "value": "x"}]

    assert client_for(member)("post", path, body).status_code == 200
    assert client_for(owner)("get", path).json() == [{"key": "OPENAI_API_KEY"}, {"key": "OTHER"}]
    assert client_for(owner)("post", path, [{"key": "OTHER", "value": None}]).status_code == 200
    assert client_for(owner)("get", path).json() == [{"key": "OPENAI_API_KEY"}]
    for invalid in (
        {},
        "x",
        [{"key": "no spaces", "value": "x"}],
        [{"key": "A"}],
        [{"key": "A\0"}],
    ):
        assert client_for(owner)("post", path, invalid).status_code == 422


def test_one_secret_is_set_kept_and_deleted_by_its_name(workspace, owner, member, client_for):
    path = "/workspaces/current/secrets"
    call = client_for(owner)

    created = call("put", f"{path}/A.B-c", {"value": "one"})
    assert (created.status_code, created.json()) == (200, {"key": "A.B-c", "configs": []})
    assert workspaces.secret_value(workspace.pk, "A.B-c") == "one"
    assert call("put", f"{path}/A.B-c", {"value": " two "}).status_code == 200
    assert call("put", f"{path}/A.B-c", {"configs": []}).status_code == 200
    assert workspaces.secret_value(workspace.pk, "A.B-c") == " two "
    assert call("get", f"{path}?include_configs=true").json() == [{"key": "A.B-c", "configs": []}]
    assert [call("delete", f"{path}/A.B-c").status_code for _ in range(2)] == [204, 404]
    assert call("get", path).json() == []
    actions = Entry.objects.filter(target_kind="secret").order_by("at")
    assert [entry.action for entry in actions] == ["secret.set", "secret.set", "secret.deleted"]


@pytest.mark.parametrize(
    ("name", "body", "status"),
    [
        ("NEW", {}, 404),
        ("NEW", {"value": None}, 404),
        ("NEW", {"value": 7, "configs": "x"}, 422),
        ("no spaces", {"value": "x"}, 422),
        ("N" * 201, {"value": "x"}, 422),
        ("NEW", {"value": "x", "configs": [{"host_pattern": "api.example"}]}, 422),
        ("NEW", {"value": "x" * (workspaces.MAX_SECRET_LENGTH + 1)}, 422),
    ],
)
def test_a_wrong_secret_is_refused(owner, client_for, name, body, status):
    path = "/workspaces/current/secrets"

    assert client_for(owner)("put", f"{path}/{name}", body).status_code == status
    assert client_for(owner)("get", path).json() == []


def test_reencrypt_moves_every_secret_to_the_new_key(workspace, settings):
    old, new = Fernet.generate_key().decode(), Fernet.generate_key().decode()
    settings.ENCRYPTION_KEYS = (old,)
    workspaces.set_secrets(workspace_id=workspace.pk, values={"A": "1", "B": "2"})

    settings.ENCRYPTION_KEYS = (new, old)
    out = StringIO()
    call_command("reencrypt", stdout=out)
    settings.ENCRYPTION_KEYS = (new,)

    assert workspaces.secret_value(workspace.pk, "A") == "1"
    assert workspaces.secret_value(workspace.pk, "B") == "2"
    assert "2 secrets are encrypted with the first key." in out.getvalue()


def test_reencrypt_reports_and_keeps_an_undecryptable_secret(workspace, settings):
    settings.ENCRYPTION_KEYS = (Fernet.generate_key().decode(),)
    workspaces.set_secrets(workspace_id=workspace.pk, values={"A": "1"})
    ciphertext = bytes(WorkspaceSecret.objects.for_workspace(workspace).get().value)
    settings.ENCRYPTION_KEYS = (Fernet.generate_key().decode(),)

    with pytest.raises(CommandError, match="No key in ENCRYPTION_KEYS decrypts 1 secrets"):
        call_command("reencrypt", stdout=StringIO())

    assert bytes(WorkspaceSecret.objects.for_workspace(workspace).get().value) == ciphertext


def test_each_encrypted_column_is_listed():
    binary = {
        (model._meta.label, field.name)
        for model in apps.get_models()
        if model.__module__.startswith("apps.")
        for field in model._meta.local_fields
        if isinstance(field, models.BinaryField)
        and field.name not in UNENCRYPTED_COLUMNS.get(model._meta.app_label, set())
    }

    assert binary == {(label, name) for label, names in ENCRYPTED_COLUMNS.items() for name in names}
