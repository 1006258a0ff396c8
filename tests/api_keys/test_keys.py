from datetime import timedelta
from types import SimpleNamespace

import pytest
import time_machine
from django.utils import timezone

from apps.api_keys import services
from apps.api_keys.authentication import authenticate
from apps.api_keys.errors import WorkspaceRequired
from apps.core import errors
from apps.organizations.permissions import Permission
from tests.factories.api_keys import api_key_row, key_for
from tests.factories.organizations import (
    MembershipFactory,
    UserFactory,
    WorkspaceFactory,
    WorkspaceMembershipFactory,
)

pytestmark = pytest.mark.django_db


def test_only_a_hash_and_a_prefix_are_stored():
    secret = key_for(WorkspaceFactory())

    row = api_key_row(secret)

    assert secret.startswith(row.prefix)
    assert len(row.prefix) == 11
    assert secret.encode() not in bytes(row.digest)
    assert bytes(row.digest) == services.digest(secret)


@pytest.mark.parametrize("secret", ["", "slip_wrong", "\udcff", "x" * 10_000])
def test_unknown_key_is_rejected(secret):
    with pytest.raises(errors.Unauthenticated):
        services.caller_for_key(secret=secret)


def test_revoked_and_expired_keys_are_rejected():
    revoked, expired = key_for(WorkspaceFactory()), key_for(WorkspaceFactory())
    services.revoke_key(key=api_key_row(revoked))
    row = api_key_row(expired)
    row.expires_at = timezone.now() - timedelta(seconds=1)
    row.save()

    for secret in (revoked, expired):
        with pytest.raises(errors.Unauthenticated):
            services.caller_for_key(secret=secret)


def test_cached_key_is_rejected_within_a_second_of_its_revocation(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("apps.core.ttl_cache.time", SimpleNamespace(monotonic=lambda: now[0]))
    services.clear_cache()
    secret = key_for(WorkspaceFactory())
    services.caller_for_key(secret=secret)
    services.revoke_key(key=api_key_row(secret))

    assert services.caller_for_key(secret=secret)
    now[0] += 1
    with pytest.raises(errors.Unauthenticated):
        services.caller_for_key(secret=secret)


def test_key_of_one_workspace_has_no_access_to_another():
    workspace = WorkspaceFactory()
    sibling = WorkspaceFactory(organization=workspace.organization)
    secret = key_for(workspace)

    with pytest.raises(errors.Forbidden):
        services.caller_for_key(secret=secret, workspace_id=sibling.pk)


def test_organization_key_has_access_to_its_workspaces_only():
    workspace = WorkspaceFactory()
    sibling = WorkspaceFactory(organization=workspace.organization)
    _, secret = services.issue_key(organization=workspace.organization, name="all", scopes=["read"])

    for selected in (workspace, sibling):
        assert (
            services.caller_for_key(secret=secret, workspace_id=selected.pk).workspace_id
            == selected.pk
        )
    with pytest.raises(WorkspaceRequired):
        services.caller_for_key(secret=secret)
    with pytest.raises(errors.Forbidden):
        services.caller_for_key(secret=secret, workspace_id=WorkspaceFactory().pk)


def test_ingest_key_has_no_other_permission():
    caller = services.caller_for_key(secret=key_for(WorkspaceFactory(), "ingest"))

    assert caller.permissions == {Permission.RUNS_INGEST}


def test_last_use_is_stored_at_most_once_a_minute(django_assert_num_queries):
    secret = key_for(WorkspaceFactory())
    with time_machine.travel("2026-01-01T00:00:00Z", tick=False):
        with django_assert_num_queries(2):
            services.caller_for_key(secret=secret)
        assert api_key_row(secret).last_used_at == timezone.now()
        services.clear_cache()
        with django_assert_num_queries(1):
            services.caller_for_key(secret=secret)
        with django_assert_num_queries(0):
            services.caller_for_key(secret=secret)


def test_member_has_access_to_their_workspace_only():
    membership = WorkspaceMembershipFactory(role="viewer")
    headers = {"X-Tenant-Id": str(membership.workspace.pk)}

    caller = authenticate(headers, membership.user)

    assert caller is not None
    assert Permission.RUNS_READ in caller.permissions
    assert Permission.DEPLOYMENTS_WRITE not in caller.permissions
    with pytest.raises(errors.NotFound):
        authenticate(headers, UserFactory())
    with pytest.raises(errors.NotFound):
        authenticate({"X-Tenant-Id": str(WorkspaceFactory().pk)}, membership.user)
    assert authenticate({}, membership.user) is None


@pytest.mark.parametrize(
    ("role", "is_accepted"), [("owner", True), ("admin", True), ("member", False)]
)
def test_owners_and_admins_of_an_organization_enter_each_workspace(role, is_accepted):
    workspace = WorkspaceFactory()
    user = MembershipFactory(organization=workspace.organization, role=role).user
    headers = {"X-Tenant-Id": str(workspace.pk)}

    if is_accepted:
        caller = authenticate(headers, user)
        assert caller is not None
        assert caller.permissions == set(Permission)
    else:
        with pytest.raises(errors.NotFound):
            authenticate(headers, user)


def test_key_takes_precedence_over_a_session_and_a_malformed_workspace_is_rejected():
    secret = key_for(WorkspaceFactory())

    caller = authenticate({"X-Api-Key": secret}, UserFactory())

    assert caller is not None
    assert caller.key_id == api_key_row(secret).pk
    with pytest.raises(errors.Forbidden):
        authenticate({"X-Api-Key": secret, "X-Tenant-Id": "nonsense"})
