"""Webhooks of prompts: configuration, signed delivery, retries and the log."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from apps.audit.models import Entry
from apps.core.secrets import decrypt
from apps.prompts.models import PromptWebhook
from apps.webhooks import delivery_queue, dispatch
from apps.webhooks.delivery_request import DeliveryResult
from apps.webhooks.models import Delivery
from apps.webhooks.tasks import delivery_worker
from tests.factories.prompts import create_commit, create_prompt, prompt_manifest
from tests.installation import wait_until
from tests.receiver import Receiver

URL = "/prompt-webhooks"
HOOK = {"url": "http://127.0.0.1:9/hook", "triggers": ["commit"]}


@pytest.fixture(autouse=True)
def local_receivers(settings, monkeypatch) -> None:
    """Allow receivers on this machine, and send no task."""
    settings.ALLOW_PRIVATE_ADDRESSES = True
    monkeypatch.setattr(dispatch, "_send", lambda: None)


def create_webhook(api, **fields):
    return api.post(URL, HOOK | fields).json()


def list_events(workspace):
    rows = Delivery.objects.for_workspace(workspace).order_by("created_at", "pk")
    return [(row.event, row.payload.get("tag_name", "")) for row in rows]


def test_webhook_is_created_read_changed_and_deleted(api, workspace, prompt):
    body = {
        "url": "http://127.0.0.1:9/hook",
        "headers": {"Authorization": "Bearer hunter2"},
        "include_prompts": [str(prompt.pk)],
        "triggers": ["commit", "tag:create"],
    }

    created = api.post(URL, body).json()

    row = PromptWebhook.objects.for_workspace(workspace).get()
    assert created.pop("signing_secret") == decrypt(row.secret)
    assert created.pop("created_at")
    assert created.pop("updated_at")
    assert created == body | {
        "id": str(row.pk),
        "tenant_id": str(workspace.pk),
        "exclude_prompts": [],
    }
    assert b"hunter2" not in bytes(row.encrypted_headers)
    (listed,) = api.get(URL).json()
    assert (listed["id"], "signing_secret" in listed) == (str(row.pk), False)
    changed = api.patch(f"{URL}/{row.pk}", {"triggers": ["tag:update"], "url": None}).json()
    assert (changed["triggers"], changed["headers"]) == (["tag:update"], body["headers"])
    secret = api.post(f"{URL}/{row.pk}/secret", {}).json()["signing_secret"]
    assert secret != decrypt(row.secret)
    row.refresh_from_db()
    assert secret == decrypt(row.secret)
    assert api.delete(f"{URL}/{row.pk}").status_code == 204
    assert api.get(f"{URL}/{row.pk}").status_code == 404
    entries = Entry.objects.filter(target_kind="prompt_webhook")
    assert "hunter2" not in repr([(e.before, e.after) for e in entries])
    assert [e.action for e in entries.order_by("at", "pk")] == [
        "prompt_webhook.created", "prompt_webhook.updated", "prompt_webhook.updated",
        "prompt_webhook.deleted",
    ]  # fmt: skip


def test_outsider_and_reader_cannot_change_a_webhook(make_api, workspace, other_workspace, api):
    created = create_webhook(api, headers={"X-Key": "hunter2"})
    outsider, reader = make_api(other_workspace), make_api(workspace, "read")
    path = f"{URL}/{created['id']}"

    for caller, status in ((outsider, 404), (reader, 403)):
        assert caller.patch(path, {"url": "http://127.0.0.1:9/"}).status_code == status
        assert caller.post(f"{path}/secret", {}).status_code == status
        assert caller.delete(path).status_code == status
    assert outsider.get(path).status_code == 404
    assert outsider.get(f"{path}/deliveries").status_code == 404
    assert outsider.get(URL).json() == []
    assert reader.get(path).json()["headers"] == {"X-Key": "*" * 16}
    assert reader.post(URL, HOOK).status_code == 403
    taken = outsider.post(URL, HOOK | {"id": created["id"]})
    assert (taken.status_code, taken.json()["code"]) == (409, "prompt_webhook_exists")


@pytest.mark.parametrize(
    "fields",
    [
        {"url": "ftp://example.com/"},
        {"url": "/done"},
        {"url": "http://user:pass@example.com/"},
        {"headers": {"Host": "example.com"}},
        {"headers": {"webhook-id": "1"}},
        {"headers": {"X-A": "a\r\nX-B: b"}},
        {"headers": {"X A": "a"}},
        {"headers": {"X-A": "*" * 16}},
        {"headers": {f"X-{n}": "a" for n in range(21)}},
        {"include_prompts": [str(uuid4())]},
        {"triggers": ["delete"]},
    ],
)
def test_invalid_webhook_is_refused(api, workspace, fields):
    response = api.post(URL, HOOK | fields)

    assert response.status_code == 422
    assert not PromptWebhook.objects.for_workspace(workspace).exists()


def test_private_address_is_refused_by_default(api, workspace, settings):
    settings.ALLOW_PRIVATE_ADDRESSES = settings.ALLOW_LOCAL_WEBHOOKS = False

    response = api.post(URL, HOOK)

    assert (response.status_code, response.json()["code"]) == (422, "webhook_blocked")


def test_events_fire_the_webhooks_that_include_them(api, workspace, prompt):
    other = create_prompt(workspace, "other")
    every = create_webhook(api, triggers=["commit", "tag:create", "tag:update"])
    create_webhook(api, include_prompts=[str(other.pk)])
    create_webhook(api, exclude_prompts=[str(prompt.pk)])
    create_webhook(api, triggers=[])

    first, second = create_commit(prompt, "a {question}"), create_commit(prompt, "b {question}")
    for commit in (first, first, second):
        body = {"tag_name": "v1", "commit_id": str(commit.pk)}
        api.post("/repos/-/helper/tags", body)

    assert list_events(workspace) == [
        ("commit", ""), ("commit", ""), ("tag:create", "v1"), ("tag:update", "v1"),
    ]  # fmt: skip
    deliveries = api.get(f"{URL}/{every['id']}/deliveries", limit=1).json()
    assert [(row["event"], row["commit_hash"], row["status"]) for row in deliveries] == [
        ("tag:update", second.commit_hash, "due")
    ]


@pytest.mark.parametrize(
    ("skipped", "count"), [(True, 0), (False, 2), (None, 2), ("first", 1), ([], 2)]
)
def test_commit_skips_webhooks(api, workspace, prompt, skipped, count):
    first, _ = create_webhook(api), create_webhook(api)
    value = [first["id"]] if skipped == "first" else skipped

    api.post("/commits/-/helper", {"manifest": prompt_manifest(), "skip_webhooks": value})

    assert len(list_events(workspace)) == count
    bad = {"manifest": prompt_manifest("b {question}"), "skip_webhooks": "all"}
    assert api.post("/commits/-/helper", bad).status_code == 422


def test_refused_commit_fires_nothing(api, workspace, prompt):
    create_commit(prompt)
    create_webhook(api)

    assert api.post("/commits/-/helper", {"manifest": prompt_manifest()}).status_code == 409

    assert list_events(workspace) == []


def test_directory_commit_fires_and_skips(api, workspace):
    create_prompt(workspace, "coder", type="agent")
    create_webhook(api)
    url = "/v1/platform/hub/repos/-/coder/directories/commits"
    for text, skip in (("1", False), ("2", True)):
        files = {"a": {"type": "file", "content": text}}
        assert api.post(url, {"files": files, "skip_webhooks": skip}).status_code == 200

    assert list_events(workspace) == [("commit", "")]


def test_address_that_the_policy_forbids_later_is_not_sent(api, workspace, prompt, settings):
    create_webhook(api)
    create_commit(prompt)
    PromptWebhook.unscoped.update(url="ftp://example.com/")

    (delivery,) = delivery_queue.claim(1)

    assert isinstance(delivery.request, DeliveryResult)
    assert delivery.request.is_final


@pytest.fixture
def running_worker(transactional_db) -> Iterator[None]:
    yield
    delivery_worker.stop()


def test_signed_webhook_is_delivered_after_a_retry(
    running_worker, api, workspace, prompt, monkeypatch
):
    monkeypatch.setattr(delivery_queue, "RETRY_SECONDS", (0.01,) * 8)
    with Receiver(500, 200) as receiver:
        hook = create_webhook(api, url=receiver.url, headers={"X-Key": "hunter2"})
        commit = create_commit(prompt)

        def is_delivered() -> bool:
            delivery_worker.wake()
            rows = api.get(f"{URL}/{hook['id']}/deliveries").json()
            return rows[0]["status"] == "delivered"

        wait_until(is_delivered, "the delivery")
        attempts = [receiver.next(), receiver.next()]

    row = Delivery.objects.for_workspace(workspace).get()
    assert [entry["status"] for entry in row.log] == [500, 200]
    for request in attempts:
        assert request.headers["webhook-id"] == f"msg_{row.message_id}"
        assert request.headers["x-key"] == "hunter2"
        assert request.is_signed_with(hook["signing_secret"])
    payload = attempts[1].json()
    assert payload.pop("created_at")
    assert payload == {
        "event": "commit",
        "prompt_id": str(prompt.pk),
        "prompt_name": "helper",
        "commit_hash": commit.commit_hash,
        "created_by": "",
        "manifest": prompt_manifest(),
    }


def test_delivery_is_replayed_under_its_id_by_writers_only(
    make_api, api, workspace, other_workspace, prompt
):
    hook = create_webhook(api)
    create_commit(prompt)
    (delivery,) = Delivery.objects.for_workspace(workspace)
    url = f"{URL}/{hook['id']}/deliveries/{delivery.pk}/replay"

    assert api.post(url, {}).status_code == 409
    Delivery.unscoped.update(status="given_up")
    assert make_api(other_workspace).post(url, {}).status_code == 404
    assert make_api(workspace, "read").post(url, {}).status_code == 403
    replayed = api.post(url, {})

    assert replayed.status_code == 202
    copy = Delivery.objects.for_workspace(workspace).get(is_replay=True)
    assert (replayed.json()["id"], copy.status) == (str(copy.pk), "due")
    assert (copy.message_id, copy.payload) == (delivery.message_id, delivery.payload)
    (claimed,) = delivery_queue.claim(10)
    assert b'"manifest":{' in claimed.request.body


def test_deleted_webhook_takes_its_deliveries_along(api, workspace, prompt):
    hook, other = create_webhook(api), create_webhook(api)
    create_commit(prompt)

    api.delete(f"{URL}/{hook['id']}")

    rows = Delivery.objects.for_workspace(workspace)
    assert [str(row.endpoint_id) for row in rows] == [other["id"]]


def test_test_request_reports_the_receivers_answer(api, workspace):
    payload = {
        "prompt_id": "1", "prompt_name": "a", "commit_hash": "b", "created_at": "now",
        "created_by": "me", "event": "commit", "manifest": {"a": 1},
    }  # fmt: skip
    with Receiver(200, 500) as receiver:
        body = {"webhook": {"url": receiver.url}, "payload": payload}
        delivered, failed = (api.post(f"{URL}/test", body).json() for _ in range(2))
        assert receiver.next().json() == payload

    assert delivered == {
        "status": "delivered",
        "message": "The receiver responded with status 200.",
    }
    assert failed["status"] == "failed"
    assert not PromptWebhook.objects.for_workspace(workspace).exists()
