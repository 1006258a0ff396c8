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
from tests.factories.organizations import UserFactory, WorkspaceFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def workspace():
    return WorkspaceFactory()


def test_an_entry_says_who_did_what_and_from_where(workspace):
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


def test_a_request_with_a_key_is_the_keys_deed(workspace):
    key, _ = issue_key(
        organization=workspace.organization, name="ci", scopes=["admin"], workspace=workspace
    )
    caller = Caller(workspace.organization_id, workspace.pk, frozenset(), key_id=key.pk)
    origin = RequestContext()

    with activate(origin):
        origin.caller, origin.key_id = caller, key.pk
        entry = record(Action.PROJECT_DELETED, Target("project"), workspace_id=workspace.pk)

    assert (entry.actor_kind, entry.actor_id) == ("key", key.pk)
    assert entry.organization_id == workspace.organization_id


def test_what_is_not_on_the_list_of_fields_never_enters(workspace):
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


@pytest.mark.parametrize("deed", ["UPDATE audit_entry SET action = 'x'", "DELETE FROM audit_entry"])
def test_postgresql_refuses_to_change_an_entry(workspace, deed):
    kept = record(Action.PROJECT_DELETED, Target("project"), workspace_id=workspace.pk)

    with (
        pytest.raises(DatabaseError, match="append-only"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(deed)

    assert Entry.objects.get(pk=kept.pk).action == "project.deleted"


def test_postgresql_refuses_to_empty_the_log(workspace):
    record(Action.PROJECT_DELETED, Target("project"), workspace_id=workspace.pk)

    # Tests alone may; here as everybody else.
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL slipway.audit = ''")
        with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
            cursor.execute("TRUNCATE audit_entry")

    assert Entry.objects.of_organization(workspace.organization_id).count() == 1


def test_a_deed_that_is_rolled_back_leaves_no_entry(workspace):
    with transaction.atomic():
        record(Action.PROJECT_DELETED, Target("project"), workspace_id=workspace.pk)
        transaction.set_rollback(True)

    assert Entry.objects.of_organization(workspace.organization_id).count() == 0


def test_what_a_client_sends_is_cut_to_size(workspace):
    entry = record(
        Action.TRACES_DELETED,
        Target("traces", name="x\0" * 300),
        after={"trace_ids": [str(n) for n in range(150)], "filter": "f\0" * 400},
        workspace_id=workspace.pk,
    )

    assert len(entry.target_name) == 200
    assert entry.after["trace_ids"][-1] == "… 150 in all"
    assert len(entry.after["filter"]) == 501
