"""Secrets at rest: encrypted, written only, and moved to a new key by one command."""

from io import StringIO

import pytest
from cryptography.fernet import Fernet
from django.apps import apps
from django.core.management import CommandError, call_command
from django.db import models

from apps.audit.models import Entry
from apps.organizations.encrypted_columns import ENCRYPTED_COLUMNS
from apps.organizations.models import WorkspaceSecret
from apps.organizations.services import secrets
from tests.factories.organizations import WorkspaceFactory

pytestmark = pytest.mark.django_db

# Binary columns that hold something else.
PLAIN = {
    "agent_server": {"blob", "batches"},
    "api_keys": {"digest", "previous_digest"},
    "feedback": {"token_hash"},
    "ingest": {"body"},
    "organizations": {"digest", "nonce"},
}


def test_the_value_is_not_in_the_database_nor_in_the_log(workspace):
    secrets.set_secrets(workspace_id=workspace.pk, values={"KEY": "sk-clear"})

    row = WorkspaceSecret.objects.for_workspace(workspace).get()
    assert b"sk-clear" not in bytes(row.value)
    assert secrets.secret_value(workspace.pk, "KEY") == "sk-clear"
    said = [(one.action, one.after) for one in Entry.objects.filter(target_kind="secret")]
    assert said == [("secret.set", {"names": ["KEY"]})]


def test_null_deletes_and_the_rest_stays(workspace):
    secrets.set_secrets(workspace_id=workspace.pk, values={"A": "1", "B": "2"})
    secrets.set_secrets(workspace_id=workspace.pk, values={"A": None, "B": "3", "C": "4"})

    values = {key: secrets.secret_value(workspace.pk, key) for key in "ABC"}
    assert values == {"A": None, "B": "3", "C": "4"}


def test_a_secret_is_its_workspaces_alone(workspace):
    secrets.set_secrets(workspace_id=workspace.pk, values={"A": "1"})

    assert secrets.secret_value(WorkspaceFactory().pk, "A") is None


def test_the_api_tells_names_and_takes_values(workspace, owner, member, speak):
    path = "/workspaces/current/secrets"
    body = [{"key": "OPENAI_API_KEY", "value": "sk-clear"}, {"key": "OTHER", "value": "x"}]

    assert speak(member)("post", path, body).status_code == 200
    assert speak(owner)("get", path).json() == [{"key": "OPENAI_API_KEY"}, {"key": "OTHER"}]
    assert speak(owner)("post", path, [{"key": "OTHER", "value": None}]).status_code == 200
    assert speak(owner)("get", path).json() == [{"key": "OPENAI_API_KEY"}]
    for bad in ({}, "x", [{"key": "no spaces", "value": "x"}], [{"key": "A"}], [{"key": "A\0"}]):
        assert speak(owner)("post", path, bad).status_code == 422


def test_a_new_key_takes_over_every_secret(workspace, settings):
    old, new = Fernet.generate_key().decode(), Fernet.generate_key().decode()
    settings.ENCRYPTION_KEYS = (old,)
    secrets.set_secrets(workspace_id=workspace.pk, values={"A": "1", "B": "2"})

    settings.ENCRYPTION_KEYS = (new, old)
    out = StringIO()
    call_command("reencrypt", stdout=out)
    settings.ENCRYPTION_KEYS = (new,)

    assert secrets.secret_value(workspace.pk, "A") == "1"
    assert secrets.secret_value(workspace.pk, "B") == "2"
    assert "2 secrets are under the first key." in out.getvalue()


def test_what_no_key_opens_is_told_and_left_alone(workspace, settings):
    settings.ENCRYPTION_KEYS = (Fernet.generate_key().decode(),)
    secrets.set_secrets(workspace_id=workspace.pk, values={"A": "1"})
    before = bytes(WorkspaceSecret.objects.for_workspace(workspace).get().value)
    settings.ENCRYPTION_KEYS = (Fernet.generate_key().decode(),)

    with pytest.raises(CommandError, match="No key in ENCRYPTION_KEYS decrypts 1 secrets"):
        call_command("reencrypt", stdout=StringIO())

    assert bytes(WorkspaceSecret.objects.for_workspace(workspace).get().value) == before


def test_each_encrypted_column_is_known():
    binary = {
        (model._meta.label, field.name)
        for model in apps.get_models()
        if model.__module__.startswith("apps.")
        for field in model._meta.local_fields
        if isinstance(field, models.BinaryField)
        and field.name not in PLAIN.get(model._meta.app_label, set())
    }

    assert binary == {(label, name) for label, names in ENCRYPTED_COLUMNS.items() for name in names}
