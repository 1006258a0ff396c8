"""Pages of alerts."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from apps.alerts.models import AlertAction, AlertIncident, AlertRule
from apps.core.secrets import decrypt
from apps.webhooks.models import Delivery
from tests.console.conftest import create_workspace_user, signed_in
from tests.factories.alerts import create_alert_action, create_alert_rule, create_delivery
from tests.factories.tracing import ingest
from tests.tracing.stats.populations import build_run

pytestmark = pytest.mark.django_db
FORM = {
    "name": "Errors of the agent",
    "metric": "error_count:pct",
    "filter": "eq(is_root, true)",
    "window_minutes": "15",
    "operator": "gte",
    "critical": "50",
    "warning": "20",
}


@pytest.fixture
def url(workspace):
    return f"/o/{workspace.pk}/alerts"


def read(response) -> str:
    return response.content.decode()


def test_empty_list_explains_alerts(page, url, project):
    assert "No alerts yet" in read(page.get(url))
    content = read(page.get(f"/o/{project.workspace_id}/projects/p/{project.pk}/alerts"))
    assert "No alerts yet" in content
    assert f"{url}/new?project={project.pk.hex}" in content


def test_lists_show_the_rules_with_their_state(page, url, project):
    rule = create_alert_rule(project, level="critical", last_value=75.0)
    create_alert_action(rule, "slack", url="https://chat.example/secret")
    create_alert_rule(project, name="Quiet", is_enabled=False)

    for path in (url, f"/o/{project.workspace_id}/projects/p/{project.pk}/alerts"):
        content = read(page.get(path))
        assert content.index("Error rate") < content.index("Quiet")
        for text in ("Critical", "75 %", "Slack", "Disabled", "critical at 50 % or more"):
            assert text in content


def test_reader_sees_alerts_but_no_forms(workspace, project, url):
    rule = create_alert_rule(project)
    viewer = signed_in(create_workspace_user(workspace, "viewer"))

    assert "New alert" not in read(viewer.get(url))
    assert "Add channel" not in read(viewer.get(f"{url}/{rule.pk}"))
    assert viewer.post(f"{url}/{rule.pk}", {"target": "webhook"}).status_code == 403
    assert viewer.get(f"{url}/new").status_code == 403
    assert viewer.post(f"{url}/{rule.pk}/change", {"action": "delete"}).status_code == 403


def test_alert_is_previewed_created_and_edited(page, url, workspace, project):
    ingest(workspace, *[build_run(minute, error="boom") for minute in range(10)])
    form = FORM | {"scope": f"project:{project.pk}"}

    preview = read(page.post(f"{url}/new", form | {"action": "preview"}))
    assert "Would have fired 1 time" in preview
    assert not AlertRule.objects.for_workspace(workspace).exists()
    response = page.post(f"{url}/new", form | {"action": "save"})

    rule = AlertRule.objects.for_workspace(workspace).get()
    assert response.url == f"{url}/{rule.pk}"
    assert (rule.project_id, rule.attribute, rule.aggregation) == (
        project.pk,
        "error_count",
        "pct",
    )
    assert (rule.threshold, rule.warning_threshold, rule.window_minutes) == (50.0, 20.0, 15)
    edited = FORM | {"metric": "latency:p95", "baseline": "1440", "critical": "2", "warning": ""}
    page.post(f"{url}/{rule.pk}/edit", edited | {"action": "save"})
    rule.refresh_from_db()
    assert (rule.project_id, rule.type, rule.attribute) == (None, "change", "latency")
    assert (rule.threshold, rule.threshold_multiplier, rule.threshold_window_minutes) == (
        None,
        2.0,
        1440,
    )
    edit = read(page.get(f"{url}/{rule.pk}/edit"))
    assert 'value="2.0"' in edit
    assert "Would not have fired" in edit


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": ""}, "This field is required"),
        ({"critical": "", "warning": ""}, "Enter a critical or a warning threshold"),
        ({"warning": "60"}, "must be reached before the critical one"),
        ({"metric": "feedback_score:avg"}, "Name the feedback key"),
        ({"filter": "eq(name"}, "field-error"),
        ({"scope": "project:1"}, "Select a valid choice"),
    ],
)
@pytest.mark.parametrize("action", ["save", "preview"])
def test_invalid_form_is_shown_again(  # noqa: PLR0917  (fixtures)
    page, url, workspace, fields, message, action
):
    response = page.post(f"{url}/new", FORM | fields | {"action": action})

    assert response.status_code == 422
    assert message in read(response)
    assert not AlertRule.objects.for_workspace(workspace).exists()


def test_channel_is_added_tested_and_removed(page, url, workspace, project):
    rule = create_alert_rule(project)
    body = {
        "target": "webhook",
        "address": "http://127.0.0.1:9/hook",
        "headers": "Authorization: Bearer hunter2\n",
    }

    added = read(page.post(f"{url}/{rule.pk}", body))

    action = AlertAction.objects.for_workspace(workspace).get()
    assert decrypt(action.secret) in added
    assert action.config["headers"] == {"Authorization": "Bearer hunter2"}
    shown = read(page.get(f"{url}/{rule.pk}"))
    assert "http://127.0.0.1:9/hook" in shown
    assert "hunter2" not in shown
    assert decrypt(action.secret) not in shown
    page.post(f"{url}/{rule.pk}/change", {"action": "test"})
    assert [row.event for row in Delivery.objects.for_workspace(workspace)] == ["test"]
    page.post(f"{url}/{rule.pk}/channels/{action.pk}/delete")
    assert not rule.actions.exists()
    assert "http://127.0.0.1:9/hook" not in read(page.get(f"{url}/{rule.pk}"))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"target": "webhook", "address": ""}, "This field is required"),
        ({"target": "slack", "address": "ftp://a.example"}, "Webhook host blocked"),
        ({"target": "pagerduty", "address": "a b"}, "must be an integration key"),
        ({"target": "slack", "address": "http://127.0.0.1/", "headers": "A: b"}, "Only a webhook"),
        (
            {"target": "webhook", "address": "http://127.0.0.1/", "headers": "A"},
            "Write each header",
        ),
    ],
)
def test_invalid_channel_is_refused(  # noqa: PLR0917  (fixtures)
    page, url, workspace, project, body, message
):
    rule = create_alert_rule(project)

    response = page.post(f"{url}/{rule.pk}", body)

    assert response.status_code == 422
    assert message in read(response)
    assert not AlertAction.objects.for_workspace(workspace).exists()


def test_alert_is_silenced_disabled_and_deleted(page, url, workspace, project):
    rule = create_alert_rule(project)
    change = f"{url}/{rule.pk}/change"

    page.post(change, {"action": "silence", "minutes": "240"})
    rule.refresh_from_db()
    assert rule.silenced_until > timezone.now() + timedelta(minutes=239)
    assert "Silenced until" in read(page.get(f"{url}/{rule.pk}"))
    page.post(change, {"action": "unsilence"})
    page.post(change, {"action": "disable"})
    rule.refresh_from_db()
    assert (rule.silenced_until, rule.is_enabled) == (None, False)
    page.post(change, {"action": "enable"})
    rule.refresh_from_db()
    assert rule.is_enabled
    assert page.post(change, {"action": "delete"}).url == url
    assert not AlertRule.objects.for_workspace(workspace).exists()


def test_detail_shows_incidents_and_deliveries_that_can_be_sent_again(page, url, project):
    rule = create_alert_rule(project)
    action = create_alert_action(rule)
    now = timezone.now()
    AlertIncident(
        workspace_id=rule.workspace_id, rule=rule, level="critical", value=75.0,
        opened_at=now - timedelta(hours=1), closed_at=now, announced_level="critical",
    ).save()  # fmt: skip
    delivery = create_delivery(rule, action.pk, status="given_up", last_error="refused")

    content = read(page.get(f"{url}/{rule.pk}"))

    for text in ("after 1 h", "75 %", "refused", "Send again"):
        assert text in content
    replay = f"{url}/{rule.pk}/deliveries/{delivery.pk}/replay"
    page.post(replay)
    copy = Delivery.objects.for_workspace(rule.workspace_id).get(is_replay=True)
    assert copy.message_id == delivery.message_id
    page.post(f"{url}/{rule.pk}/deliveries/{copy.pk}/replay")
    assert Delivery.objects.for_workspace(rule.workspace_id).count() == 2
