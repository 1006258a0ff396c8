"""Channels: their configuration, and what they are sent."""

from __future__ import annotations

import asyncio
import json
from uuid import uuid4

import pytest
from django.core import mail

from apps.alerts import channels
from apps.alerts.errors import InvalidAlert
from apps.alerts.models import AlertLevel
from apps.alerts.services import notices, rules
from apps.core.secrets import decrypt
from apps.webhooks import delivery_queue
from apps.webhooks.delivery_request import DeliveryResult
from apps.webhooks.email_request import EmailRequest, send_email
from apps.webhooks.errors import InvalidHeaders
from apps.webhooks.models import Delivery
from apps.webhooks.tasks import delivery_worker
from tests.console.conftest import create_workspace_user
from tests.factories.alerts import (
    DAY,
    SECRET,
    create_alert_action,
    create_alert_rule,
    create_delivery,
)
from tests.installation import wait_until
from tests.receiver import Receiver

HOOK = "http://127.0.0.1:9/hook"
KEY = "R0123456789ABCDEF"


@pytest.fixture
def rule(project):
    return create_alert_rule(project, description="Call the vendor.", last_value=60.0)


def build_notice(rule, status=notices.FIRED, level=AlertLevel.CRITICAL):
    return notices.build_notice(
        rule, uuid4(), status=status, level=level, at=DAY, value=60.0, threshold=50.0
    )


def read_body(action, notice):
    return json.loads(channels.build_channel_request(action, notice, "msg_1").body)


def test_webhook_has_the_configured_body_and_the_facts_of_the_alert(rule):
    action = create_alert_action(rule, url=HOOK, body={"team": "a"}, headers={"X-Key": "hunter2"})
    notice = build_notice(rule)

    request = channels.build_channel_request(action, notice, "msg_1")

    body = json.loads(request.body)
    assert body["team"] == "a"
    assert {name: body[name] for name in (
        "status", "level", "project_name", "alert_rule_id", "alert_rule_name", "alert_rule_type",
        "alert_rule_attribute", "triggered_metric_value", "triggered_threshold", "timestamp",
    )} == {
        "status": "fired", "level": "critical", "project_name": "default",
        "alert_rule_id": str(rule.pk), "alert_rule_name": "Error rate",
        "alert_rule_type": "threshold", "alert_rule_attribute": "error_count",
        "triggered_metric_value": 60.0, "triggered_threshold": 50.0,
        "timestamp": "2026-03-01T00:00:00+00:00",
    }  # fmt: skip
    assert request.headers["X-Key"] == "hunter2"
    assert request.headers["webhook-id"] == "msg_1"


def test_slack_text_cannot_mention_people(rule):
    rule.name = "<!channel> & co"
    action = create_alert_action(rule, "slack", url=HOOK)

    request = channels.build_channel_request(action, build_notice(rule), "msg_1")

    text = json.loads(request.body)["text"]
    assert text.startswith("*Critical: &lt;!channel&gt; &amp; co*\nError rate 60 % in 15 min on")
    assert "Call the vendor." in text
    assert f"/alerts/{rule.pk}" in text
    assert "webhook-signature" not in request.headers


def test_pagerduty_incident_is_triggered_and_resolved_under_one_key(rule):
    action = create_alert_action(rule, "pagerduty", url=HOOK, routing_key=KEY)
    fired = build_notice(rule)

    trigger = read_body(action, fired)
    resolve = read_body(action, fired | {"status": "recovered", "level": "ok"})

    assert trigger["event_action"] == "trigger"
    assert trigger["payload"]["severity"] == "critical"
    assert trigger["payload"]["source"] == "default"
    assert trigger["links"][0]["href"].endswith(f"/alerts/{rule.pk}")
    assert resolve == {
        "routing_key": KEY,
        "event_action": "resolve",
        "dedup_key": trigger["dedup_key"],
    }


def test_email_goes_to_members_only(rule, workspace, settings):
    settings.EMAIL_HOST = "mail.example"
    member = create_workspace_user(workspace, "viewer")
    config = channels.validate_config(workspace.pk, "email", {"recipients": [member.email]}, None)
    action = create_alert_action(rule, "email", **config)

    request = channels.build_channel_request(action, build_notice(rule), "msg_1")

    assert isinstance(request, EmailRequest)
    assert (request.subject, request.recipients) == ("Critical: Error rate", [member.email])
    member.workspace_memberships.all().delete()
    assert channels.build_channel_request(action, build_notice(rule), "msg_1").recipients == []
    with pytest.raises(channels.errors.InvalidAlert, match="is not a member"):
        channels.validate_config(workspace.pk, "email", {"recipients": [member.email]}, None)


@pytest.mark.parametrize(
    ("target", "config"),
    [
        ("webhook", {}),
        ("webhook", {"url": "/done"}),
        ("webhook", {"url": "ftp://example.com/"}),
        ("webhook", {"url": HOOK, "headers": {"Host": "a"}}),
        ("webhook", {"url": HOOK, "headers": {"X-A": 1}}),
        ("webhook", {"url": HOOK, "headers": {"X-A": "*" * 16}}),
        ("webhook", {"url": HOOK, "body": []}),
        ("webhook", {"url": HOOK, "body": {"a": "x" * 10_001}}),
        ("webhook", {"url": HOOK, "unknown": 1}),
        ("slack", {"url": "http://user:pass@example.com/"}),
        ("pagerduty", {"routing_key": ""}),
        ("pagerduty", {"routing_key": "a b"}),
        ("pagerduty", {"routing_key": "*" * 16}),
        ("email", {"recipients": []}),
        ("email", {"recipients": "a@example.com"}),
        ("email", {"recipients": ["a@example.com"]}),
    ],
)
def test_invalid_configuration_is_refused(api, project, target, config):
    body = {"rule": RULE, "actions": [{"target": target, "config": config}]}

    response = api.post(f"/v1/platform/alerts/{project.pk}", body)

    assert response.status_code == 422, response.content
    assert api.get(f"/v1/platform/alerts/{project.pk}").json() == []


RULE = {
    "name": "Errors", "attribute": "error_count", "aggregation": "pct", "window_minutes": 15,
    "threshold": 10,
}  # fmt: skip


def test_private_address_is_refused_by_default(api, project, settings):
    settings.ALLOW_PRIVATE_ADDRESSES = settings.ALLOW_LOCAL_WEBHOOKS = False
    for target in ("webhook", "slack", "pagerduty"):
        config = {"url": HOOK} | ({"routing_key": KEY} if target == "pagerduty" else {})
        body = {"rule": RULE, "actions": [{"target": target, "config": config}]}

        response = api.post(f"/v1/platform/alerts/{project.pk}", body)

        assert (response.status_code, response.json()["code"]) == (422, "webhook_blocked")


def test_secrets_are_encrypted_and_never_returned(api, project, workspace, make_api):
    actions = [
        {"target": "webhook", "config": {"url": HOOK, "headers": {"X-Key": "hunter2"}}},
        {"target": "slack", "config": {"url": "http://127.0.0.1/services/hunter2"}},
        {"target": "pagerduty", "config": {"routing_key": "hunter2", "url": HOOK}},
    ]
    path = f"/v1/platform/alerts/{project.pk}"

    created = api.post(path, {"rule": RULE, "actions": actions}).json()

    webhook, slack, pagerduty = created["actions"]
    rows = {str(row.pk): row for row in rules.AlertAction.objects.for_workspace(workspace)}
    assert webhook["signing_secret"] == decrypt(rows[webhook["id"]].secret)
    assert "signing_secret" not in slack
    assert rows[webhook["id"]].config["headers"] == {"X-Key": "hunter2"}
    assert all(b"hunter2" not in bytes(row.encrypted_config) for row in rows.values())
    shown = api.get(f"{path}/{created['rule']['id']}").content.decode()
    assert "hunter2" not in shown
    assert "signing_secret" not in shown
    # A client that reads, changes and writes the rule keeps the masked values.
    read = json.loads(shown)
    changed = api.patch(f"{path}/{created['rule']['id']}", {"actions": read["actions"]})
    assert changed.status_code == 200, changed.content
    kept = {str(row.pk): row.config for row in rules.AlertAction.objects.for_workspace(workspace)}
    assert kept[webhook["id"]]["headers"] == {"X-Key": "hunter2"}
    assert kept[slack["id"]]["url"].endswith("/hunter2")
    assert kept[pagerduty["id"]]["routing_key"] == "hunter2"


def test_deliveries_of_a_workspace_are_limited_per_hour(rule, monkeypatch):
    monkeypatch.setattr(notices, "MAX_DELIVERIES_PER_HOUR", 3)
    create_alert_action(rule, url=HOOK)
    create_alert_action(rule, url=HOOK)

    for _ in range(2):
        notices.send_test(rule=rule)

    rows = Delivery.objects.for_workspace(rule.workspace_id).order_by("created_at", "pk")
    assert sorted((row.status, row.last_error) for row in rows) == [
        *[("due", "")] * 3,
        ("given_up", "The workspace has reached 3 deliveries in an hour."),
    ]


def test_delivery_of_a_removed_channel_is_given_up(rule):
    create_delivery(rule)

    (claimed,) = delivery_queue.claim(10)

    assert claimed.request == DeliveryResult(error="The channel was deleted.", is_final=True)


def test_each_recipient_of_a_mail_has_a_delivery(rule, workspace, settings):
    """A mail that fails is repeated to its recipient, and to no other."""
    settings.EMAIL_HOST = "mail.example"
    addresses = [create_workspace_user(workspace, "viewer").email for _ in range(3)]
    action = create_alert_action(rule, "email", recipients=addresses)

    assert notices.send_test(rule=rule) == 3
    action.config = {"recipients": addresses[:2]}
    action.save()
    claimed = delivery_queue.claim(10)

    recipients = [delivery.request.recipients for delivery in claimed]
    assert sorted(recipients) == sorted([[], *([address] for address in addresses[:2])])


@pytest.fixture
def running_worker(transactional_db):
    yield
    delivery_worker.stop()


def test_signed_notice_is_delivered_after_a_retry_and_replayed(
    running_worker, api, rule, monkeypatch
):
    monkeypatch.setattr(delivery_queue, "RETRY_SECONDS", (0.01,) * 8)
    path = f"/v1/platform/alerts/rules/{rule.pk}"
    with Receiver(500, 200) as receiver:
        create_alert_action(rule, url=receiver.url)
        assert api.post(f"{path}/test", {}).json() == {"delivery_count": 1}
        attempts = [_receive(receiver), _receive(receiver)]
        wait_until(lambda: _statuses(api, path) == ["delivered"], "the delivery")
        (delivery,) = api.get(f"{path}/deliveries").json()
        replayed = api.post(f"{path}/deliveries/{delivery['id']}/replay", {}).json()
        again = _receive(receiver)
        wait_until(lambda: _statuses(api, path) == ["delivered"] * 2, "the replay")

    assert [entry["status"] for entry in delivery["log"]] == [500, 200]
    assert (replayed["is_replay"], replayed["message_id"]) == (True, delivery["message_id"])
    for request in (*attempts, again):
        assert request.headers["webhook-id"] == delivery["message_id"]
        assert request.is_signed_with(SECRET)
        assert request.json()["status"] == "test"


def _receive(receiver):
    delivery_worker.wake()
    wait_until(lambda: delivery_worker.wake() or receiver.count_unread, "the request")
    return receiver.next()


def _statuses(api, path):
    return [row["status"] for row in api.get(f"{path}/deliveries").json()]


def test_email_is_sent_by_the_worker(running_worker, rule, workspace, settings):
    settings.EMAIL_HOST = "mail.example"
    member = create_workspace_user(workspace, "viewer")
    create_alert_action(rule, "email", recipients=[member.email])
    notices.send_test(rule=rule)

    wait_until(lambda: delivery_worker.wake() or mail.outbox, "the email")

    (message,) = mail.outbox
    assert (message.subject, message.to) == ("Test: Error rate", [member.email])
    assert f"/alerts/{rule.pk}" in message.body


def test_line_breaks_in_a_name_add_no_header_and_do_not_stop_the_mail(settings):
    settings.EMAIL_HOST = "mail.example"
    subject = "Test: a\r\nBcc: eve@example.com\rb\n\u2028c"

    result = asyncio.run(send_email(EmailRequest(subject, "text", ["ada@example.com"])))

    assert result.is_delivered
    (message,) = mail.outbox
    assert message.subject == "Test: a Bcc: eve@example.com b c"
    assert message.recipients() == ["ada@example.com"]


ELSEWHERE = "http://127.0.0.2:9/hook"


@pytest.mark.parametrize("url", [ELSEWHERE, "http://127.0.0.1:8/hook", "https://127.0.0.1:9/hook"])
def test_masked_header_is_not_sent_to_another_receiver(rule, url):
    """A member who changes the address would read secrets that are write-only."""
    action = create_alert_action(rule, url=HOOK, headers={"X-Key": "hunter2"}, body={})
    config = channels.mask_config(action) | {"url": url}
    fields = {"id": action.pk, "target": action.target, "config": config}

    with pytest.raises(InvalidHeaders):
        rules.update_rule(rule=rule, changes={}, actions=[fields])

    action.refresh_from_db()
    assert (action.config["url"], action.config["headers"]) == (HOOK, {"X-Key": "hunter2"})


def test_masked_header_stays_with_another_path(rule):
    action = create_alert_action(rule, url=HOOK, headers={"X-Key": "hunter2"}, body={})
    config = channels.mask_config(action) | {"url": f"{HOOK}/other"}

    rules.update_rule(
        rule=rule, changes={}, actions=[{"id": action.pk, "target": "webhook", "config": config}]
    )

    action.refresh_from_db()
    assert action.config["headers"] == {"X-Key": "hunter2"}


def test_masked_routing_key_is_not_sent_to_another_receiver(rule):
    action = create_alert_action(rule, "pagerduty", url=HOOK, routing_key=KEY)
    config = channels.mask_config(action) | {"url": ELSEWHERE}
    fields = {"id": action.pk, "target": "pagerduty", "config": config}

    with pytest.raises(InvalidAlert, match="routing_key"):
        rules.update_rule(rule=rule, changes={}, actions=[fields])
