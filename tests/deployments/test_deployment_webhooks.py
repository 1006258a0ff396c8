"""Webhooks of deployments: configuration, events of revisions, delivery and pages."""

from __future__ import annotations

import json

import pytest

from apps.audit.models import Entry
from apps.core.secrets import decrypt
from apps.deployments.models import DeploymentWebhook
from apps.deployments.services import progress, webhooks
from apps.deployments.statuses import RevisionStatus
from apps.webhooks import delivery_queue, dispatch
from apps.webhooks.models import Delivery
from tests.console.conftest import create_workspace_user, signed_in
from tests.factories.deployments import (
    DeploymentFactory,
    RevisionFactory,
    create_deployment_webhook,
)
from tests.tracing.conftest import api, make_api, other_workspace, page

__all__ = ["api", "make_api", "other_workspace", "page"]
pytestmark = pytest.mark.django_db
URL = "/v1/platform/deployment-webhooks"
HOOK = {"url": "http://127.0.0.1:9/hook"}


@pytest.fixture(autouse=True)
def local_receivers(settings, monkeypatch) -> None:
    """Allow receivers on this machine, and send no task."""
    settings.ALLOW_PRIVATE_ADDRESSES = True
    monkeypatch.setattr(dispatch, "_send", lambda: None)


def list_events(workspace):
    rows = Delivery.objects.for_workspace(workspace).order_by("created_at", "pk")
    return [row.event for row in rows]


def test_webhook_is_created_read_changed_and_deleted(api, workspace):
    deployment = DeploymentFactory(workspace=workspace)
    body = HOOK | {
        "headers": {"Authorization": "Bearer hunter2"},
        "events": ["revision.failed"],
        "deployment_id": str(deployment.pk),
    }

    response = api.post(URL, body)

    created = response.json()
    row = DeploymentWebhook.objects.for_workspace(workspace).get()
    assert response.status_code == 201
    assert created.pop("signing_secret") == decrypt(row.secret)
    assert created == created | body | {"id": str(row.pk), "tenant_id": str(workspace.pk)}
    assert b"hunter2" not in bytes(row.encrypted_headers)
    assert api.get(URL).json() == [created] == [api.get(f"{URL}/{row.pk}").json()]
    changed = api.patch(f"{URL}/{row.pk}", {"deployment_id": None}).json()
    assert (changed["deployment_id"], changed["events"]) == (None, ["revision.failed"])
    secret = api.post(f"{URL}/{row.pk}/secret", {}).json()["signing_secret"]
    row.refresh_from_db()
    assert secret == decrypt(row.secret)
    assert api.delete(f"{URL}/{row.pk}").status_code == 204
    assert api.get(URL).json() == []
    entries = Entry.objects.filter(target_kind="deployment_webhook").order_by("at", "pk")
    assert [entry.action.partition(".")[2] for entry in entries] == [
        "created", "updated", "updated", "deleted",
    ]  # fmt: skip
    assert "hunter2" not in repr([(entry.before, entry.after) for entry in entries])


def test_outsider_and_reader_cannot_change_a_webhook(make_api, workspace, other_workspace):
    webhook = create_deployment_webhook(workspace)
    outsider, reader = make_api(other_workspace), make_api(workspace, "read")
    path = f"{URL}/{webhook.pk}"

    for caller, status in ((outsider, 404), (reader, 403)):
        assert caller.patch(path, HOOK).status_code == status
        assert caller.post(f"{path}/secret", {}).status_code == status
        assert caller.post(f"{path}/test", {}).status_code == status
        assert caller.delete(path).status_code == status
    assert outsider.get(path).status_code == 404
    assert outsider.get(f"{path}/deliveries").status_code == 404
    assert outsider.get(URL).json() == []
    assert reader.get(f"{path}/deliveries").json() == []
    foreign = {"deployment_id": str(DeploymentFactory(workspace=workspace).pk)}
    assert outsider.post(URL, HOOK | foreign).status_code == 404


@pytest.mark.parametrize(
    "fields",
    [
        {"url": "/done"},
        {"url": "ftp://example.com/"},
        {"headers": {"Host": "a"}},
        {"events": ["revision.born"]},
    ],
)
def test_invalid_webhook_is_refused(api, workspace, fields):
    assert api.post(URL, HOOK | fields).status_code == 422
    assert not DeploymentWebhook.objects.for_workspace(workspace).exists()


def test_number_of_webhooks_is_limited(api, monkeypatch):
    monkeypatch.setattr(webhooks, "MAX_WEBHOOKS", 1)
    assert api.post(URL, HOOK).status_code == 201

    refused = api.post(URL, HOOK)

    assert refused.json()["code"] == "too_many_deployment_webhooks"


def test_private_address_is_refused_by_default(api, settings):
    settings.ALLOW_PRIVATE_ADDRESSES = settings.ALLOW_LOCAL_WEBHOOKS = False

    assert api.post(URL, HOOK).json()["code"] == "webhook_blocked"


def test_final_statuses_of_revisions_fire_the_webhooks_that_want_them(api, workspace):
    deployment = DeploymentFactory(workspace=workspace)
    revision = RevisionFactory(deployment=deployment, status=RevisionStatus.BUILDING)
    hook = api.post(URL, HOOK).json()
    api.post(URL, HOOK | {"events": ["revision.deployed"]})
    other = DeploymentFactory(workspace=workspace)
    api.post(URL, HOOK | {"deployment_id": str(other.pk)})

    progress.fail(revision, reason="pip failed")

    (delivery,) = Delivery.objects.for_workspace(workspace)
    assert (delivery.event, str(delivery.endpoint_id)) == ("revision.failed", hook["id"])
    (claimed,) = delivery_queue.claim(10)
    body = json.loads(claimed.request.body)
    assert body == body | {
        "event": "revision.failed", "deployment_id": str(deployment.pk),
        "deployment_name": deployment.name, "revision_number": revision.number,
        "status": "BUILD_FAILED", "failure": "pip failed",
    }  # fmt: skip
    assert body["url"].endswith(f"/deployments/{deployment.pk}/revisions/{revision.pk}")


def test_intermediate_statuses_fire_nothing(api, workspace):
    revision = RevisionFactory(deployment__workspace=workspace, status=RevisionStatus.QUEUED)
    api.post(URL, HOOK)

    progress.advance(revision.pk, to=RevisionStatus.AWAITING_BUILD)
    progress.advance(revision.pk, to=RevisionStatus.SKIPPED)

    assert list_events(workspace) == []


def test_test_is_logged_and_replayed(api, workspace):
    hook = api.post(URL, HOOK).json()
    path = f"{URL}/{hook['id']}"

    sent = api.post(f"{path}/test", {}).json()

    assert (sent["event"], sent["status"]) == ("test", "due")
    replay = f"{path}/deliveries/{sent['id']}/replay"
    assert api.post(replay, {}).status_code == 409
    Delivery.unscoped.update(status="given_up")
    assert api.post(replay, {}).json()["message_id"] == sent["message_id"]
    assert [row["is_replay"] for row in api.get(f"{path}/deliveries").json()] == [True, False]
    api.delete(path)
    assert list_events(workspace) == []


def test_pages_create_test_and_delete_a_webhook(page, workspace):
    url = f"/o/{workspace.pk}/settings/deployment-webhooks"
    assert "No webhooks yet" in page.get(url).content.decode()
    body = {"url": HOOK["url"], "events": ["revision.failed"], "headers": "X-Key: hunter2"}

    created = page.post(url, body).content.decode()

    webhook = DeploymentWebhook.objects.for_workspace(workspace).get()
    assert decrypt(webhook.secret) in created
    assert "hunter2" not in page.get(url).content.decode()
    detail = f"{url}/{webhook.pk}"
    page.post(detail, {"action": "test"})
    assert "Test" in page.get(detail).content.decode()
    assert page.post(url, body | {"url": "ftp://a"}).status_code == 422
    (delivery,) = Delivery.objects.for_workspace(workspace)
    Delivery.unscoped.update(status="delivered")
    assert "Send again" in page.get(detail).content.decode()
    page.post(f"{detail}/deliveries/{delivery.pk}/replay")
    assert list_events(workspace) == ["test", "test"]
    replaced = page.post(detail, {"action": "secret"}).content.decode()
    webhook.refresh_from_db()
    assert decrypt(webhook.secret) in replaced
    viewer = signed_in(create_workspace_user(workspace, "viewer"))
    assert viewer.post(detail, {"action": "test"}).status_code == 403
    assert viewer.post(f"{detail}/delete").status_code == 403
    page.post(f"{detail}/delete")
    assert not DeploymentWebhook.objects.for_workspace(workspace).exists()
