import pytest
from django.db import Error as DatabaseError
from django.db import connection, transaction
from django.test import RequestFactory

from apps.api_keys.services import issue_key
from apps.audit.actions import FIELDS, Action
from apps.audit.models import Entry
from apps.audit.services import Target, record
from apps.core.callers import Caller
from apps.core.request_context import RequestContext, activate
from tests.factories.organizations import UserFactory

pytestmark = pytest.mark.django_db


def test_entry_has_actor_action_target_and_address(workspace):
    user = UserFactory()
    request = RequestFactory().get("/")
    request.user = user

    with activate(RequestContext("192.0.2.7", "request-1", request=request)):
        record(
            Action.DEPLOYMENT_UPDATED,
            Target("deployment", "d1", "agent"),
            before={"name": "agent", "repo_ref": "main"},
            after={"name": "agent", "repo_ref": "next"},
            workspace_id=workspace.pk,
        )

    entry = Entry.objects.of_organization(workspace.organization_id).get()
    assert (entry.actor_kind, entry.actor_id, entry.actor_label) == ("user", user.pk, user.email)
    assert (entry.ip, entry.request_id) == ("192.0.2.7", "request-1")
    assert (entry.action, entry.target_kind, entry.target_id) == (
        "deployment.updated", "deployment", "d1",
    )  # fmt: skip
    assert (entry.before, entry.after) == ({"repo_ref": "main"}, {"repo_ref": "next"})


def test_request_with_a_key_is_recorded_with_the_key_as_actor(workspace):
    key, _ = issue_key(
        organization=workspace.organization, name="ci", scopes=["admin"], workspace=workspace
    )
    caller = Caller(workspace.organization_id, workspace.pk, frozenset(), key_id=key.pk)
    context = RequestContext()

    with activate(context):
        context.caller, context.key_id = caller, key.pk
        entry = record(Action.PROJECT_DELETED, Target("project"), workspace_id=workspace.pk)

    assert (entry.actor_kind, entry.actor_id) == ("key", key.pk)
    assert entry.organization_id == workspace.organization_id


def test_field_outside_the_list_is_not_recorded(workspace):
    entry = record(
        Action.KEY_CREATED,
        Target("key", "k1"),
        after={"name": "ci", "secret": "slip_very_secret", "digest": b"x", "scopes": {"b", "a"}},
        workspace_id=workspace.pk,
    )

    assert entry.after == {"name": "ci", "scopes": ["a", "b"]}


def test_no_list_of_fields_names_a_secret():
    listed = {field for fields in FIELDS.values() for field in fields}

    assert (
        listed & {"secret", "password", "token", "key_hash", "digest", "value_encrypted"} == set()
    )


def test_every_action_has_a_unique_name_of_two_words():
    assert {action.count(".") for action in Action} == {1}
    assert len({str(action) for action in Action}) == len(Action)


@pytest.mark.parametrize(
    "statement", ["UPDATE audit_entry SET action = 'x'", "DELETE FROM audit_entry"]
)
def test_postgresql_rejects_changes_of_an_entry(workspace, statement):
    entry = record(Action.PROJECT_DELETED, Target("project"), workspace_id=workspace.pk)

    with (
        pytest.raises(DatabaseError, match="append-only"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(statement)

    assert Entry.objects.get(pk=entry.pk).action == "project.deleted"


def test_postgresql_rejects_truncation_of_the_log(workspace):
    record(Action.PROJECT_DELETED, Target("project"), workspace_id=workspace.pk)

    # The test settings permit it; here it is forbidden as in production.
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL slipway.audit = ''")
        with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
            cursor.execute("TRUNCATE audit_entry")

    assert Entry.objects.of_organization(workspace.organization_id).count() == 1


def test_rolled_back_action_leaves_no_entry(workspace):
    with transaction.atomic():
        record(Action.PROJECT_DELETED, Target("project"), workspace_id=workspace.pk)
        transaction.set_rollback(True)

    assert Entry.objects.of_organization(workspace.organization_id).count() == 0


def test_recorded_client_values_are_truncated(workspace):
    entry = record(
        Action.TRACES_DELETED,
        Target("traces", name="x\0" * 300),
        after={"trace_ids": [str(n) for n in range(150)], "filter": "f\0" * 400},
        workspace_id=workspace.pk,
    )

    assert len(entry.target_name) == 200
    assert entry.after["trace_ids"][-1] == "… 150 in all"
    assert len(entry.after["filter"]) == 501
