"""/v1/platform/alerts: rules, preview, silence, incidents and deliveries."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest
from django.utils import timezone

from apps.alerts.models import AlertIncident, AlertRule
from apps.alerts.services import rules
from apps.audit.models import Entry
from tests.factories.alerts import (
    DAY,
    create_alert_action,
    create_alert_rule,
    create_delivery,
)
from tests.factories.deployments import DeploymentFactory
from tests.factories.tracing import ProjectFactory, ingest
from tests.tracing.stats.populations import NOON, build_run

pytestmark = pytest.mark.django_db
ALERTS = "/v1/platform/alerts"
RULE = {
    "name": "Errors",
    "attribute": "error_count",
    "aggregation": "pct",
    "window_minutes": 15,
    "threshold": 10,
}
HOOK = {"target": "webhook", "config": {"url": "http://127.0.0.1:9/hook"}}


@pytest.fixture
def path(project):
    return f"{ALERTS}/{project.pk}"


def test_anonymous_request_is_rejected(client, db):
    assert client.get(ALERTS).status_code == 401


def test_rule_is_created_read_changed_and_deleted(api, workspace, project, path):
    body = {"rule": RULE | {"filter": "eq(is_root, true)"}, "actions": [HOOK]}

    response = api.post(path, body)

    created = response.json()
    assert response.status_code == 201
    rule, (action,) = created["rule"], created["actions"]
    row = AlertRule.objects.for_workspace(workspace).get()
    assert rule == rule | body["rule"] | {
        "id": str(row.pk), "session_id": str(project.pk), "deployment_id": None,
        "type": "threshold", "operator": "gte", "level": "ok", "is_enabled": True,
        "warning_threshold": None, "description": "",
    }  # fmt: skip
    assert action["config"] == HOOK["config"] | {"headers": {}, "body": {}}
    url = f"{path}/{row.pk}"
    (listed,) = api.get(path).json()
    assert listed == api.get(url).json() == api.get(f"{ALERTS}/rules/{row.pk}").json()
    changed = api.patch(url, {"rule": {"threshold": 20, "warning_threshold": 5}}).json()
    assert changed["rule"] == rule | {
        "threshold": 20.0, "warning_threshold": 5.0, "updated_at": changed["rule"]["updated_at"],
    }  # fmt: skip
    assert [item["id"] for item in changed["actions"]] == [action["id"]]
    emptied = api.patch(url, {"actions": []}).json()
    assert emptied["actions"] == []
    assert api.delete(url).status_code == 204
    assert api.get(url).status_code == 404
    entries = Entry.objects.filter(target_kind="alert").order_by("at", "pk")
    assert [entry.action for entry in entries] == [
        "alert.created", "alert.updated", "alert.updated", "alert.deleted",
    ]  # fmt: skip
    assert entries[1].after == {"threshold": 20.0, "warning_threshold": 5.0}


def test_outsider_and_reader_cannot_change_alerts(make_api, workspace, other_workspace, project):
    rule = create_alert_rule(project)
    action = create_alert_action(rule)
    delivery = create_delivery(rule, action.pk, status="delivered")
    outsider, reader = make_api(other_workspace), make_api(workspace, "read")
    urls = [f"{ALERTS}/{project.pk}/{rule.pk}", f"{ALERTS}/rules/{rule.pk}"]

    for caller, status in ((outsider, 404), (reader, 403)):
        for url in urls:
            assert caller.patch(url, {"rule": {"name": "x"}}).status_code == status
            assert caller.delete(url).status_code == status
            assert caller.post(f"{url}/test", {}).status_code == status
        assert caller.post(f"{urls[1]}/silence", {"minutes": 5}).status_code == status
        replay = f"{urls[1]}/deliveries/{delivery.pk}/replay"
        assert caller.post(replay, {}).status_code == status
        assert caller.post(f"{ALERTS}/{project.pk}", {"rule": RULE}).status_code == status
    for suffix in ("", "/incidents", "/deliveries"):
        assert outsider.get(f"{urls[1]}{suffix}").status_code == 404
        assert reader.get(f"{urls[1]}{suffix}").status_code == 200
    assert outsider.get(ALERTS).json() == []
    foreign = outsider.post(ALERTS, {"rule": RULE | {"session_id": str(project.pk)}})
    assert foreign.status_code == 404
    rule.refresh_from_db()
    assert rule.name == "Error rate"


def test_rule_of_another_project_is_not_found_below_a_project(api, project, workspace):
    rule = create_alert_rule(ProjectFactory(workspace=workspace))

    assert api.get(f"{ALERTS}/{project.pk}/{rule.pk}").status_code == 404


def test_rules_of_deployments_and_of_the_workspace(api, workspace, project):
    deployment = DeploymentFactory(workspace=workspace)
    bodies = [RULE, RULE | {"deployment_id": str(deployment.pk)}]
    for body in bodies:
        assert api.post(ALERTS, {"rule": body}).status_code == 201
    api.post(f"{ALERTS}/{project.pk}", {"rule": RULE})

    listed = [alert["rule"] for alert in api.get(ALERTS).json()]

    assert [(rule["session_id"], rule["deployment_id"]) for rule in listed] == [
        (str(project.pk), None), (None, str(deployment.pk)), (None, None),
    ]  # fmt: skip
    assert len(api.get(ALERTS, deployment_id=str(deployment.pk)).json()) == 1
    assert len(api.get(ALERTS, session_id=str(project.pk)).json()) == 1
    assert len(api.get(ALERTS, limit=2, offset=1).json()) == 2
    both = RULE | {"deployment_id": str(deployment.pk), "session_id": str(project.pk)}
    assert api.post(ALERTS, {"rule": both}).status_code == 422
    foreign = RULE | {"deployment_id": str(DeploymentFactory().pk)}
    assert api.post(ALERTS, {"rule": foreign}).status_code == 404


@pytest.mark.parametrize(
    "fields",
    [
        {"name": ""},
        {"attribute": "mood"},
        {"aggregation": "avg"},
        {"aggregation": "sum", "attribute": "latency"},
        {"attribute": "feedback_score", "aggregation": "avg"},
        {"feedback_key": "ok"},
        {"window_minutes": 0},
        {"window_minutes": 7},
        {"window_minutes": 1445},
        {"threshold": None},
        {"threshold": "nan"},
        {"warning_threshold": 10},
        {"operator": "lte", "warning_threshold": 5},
        {"operator": "gt"},
        {"threshold_multiplier": 2},
        {"type": "change"},
        {"type": "change", "threshold": None, "threshold_multiplier": 2},
        {"type": "change", "threshold": None, "threshold_window_minutes": 60},
        {
            "type": "change", "threshold": None, "threshold_window_minutes": 60,
            "threshold_multiplier": 0,
        },
        {
            "type": "change", "threshold": None, "threshold_window_minutes": 63,
            "threshold_multiplier": 2,
        },
        {"denominator_filter": "eq(is_root, true)", "aggregation": "count"},
        {"min_run_count": -1},
        {"filter": "x" * 8001},
    ],
)  # fmt: skip
def test_invalid_rule_is_refused(api, workspace, path, fields):
    for url in (path, f"{ALERTS}/preview"):
        assert api.post(url, {"rule": RULE | fields}).status_code == 422
    assert not AlertRule.objects.for_workspace(workspace).exists()


def test_invalid_filter_is_refused(api, path):
    response = api.post(path, {"rule": RULE | {"filter": "eq(name"}})

    assert (response.status_code, response.json()["code"]) == (400, "filter_invalid")


@pytest.mark.parametrize(
    "actions",
    [
        [{"target": "fax", "config": {}}],
        [{"config": {}}],
        [HOOK | {"id": str(uuid4())}],
        [HOOK] * 11,
    ],
)
def test_invalid_actions_are_refused(api, path, actions):
    assert api.post(path, {"rule": RULE, "actions": actions}).status_code == 422
    assert api.get(path).json() == []


def test_names_of_clients_are_accepted(api, path):
    body = {"rule": RULE | {"attribute": "run_latency", "aggregation": "p95"}}

    assert api.post(path, body).json()["rule"]["attribute"] == "latency"


def test_number_of_rules_is_limited(api, path, monkeypatch):
    monkeypatch.setattr(rules, "MAX_RULES", 1)
    assert api.post(path, {"rule": RULE}).status_code == 201

    refused = api.post(path, {"rule": RULE})

    assert (refused.status_code, refused.json()["code"]) == (422, "too_many_alerts")


def test_preview_lists_the_incidents_of_the_last_weeks(api, workspace, project):
    ingest(workspace, *[build_run(minute, error="boom") for minute in range(10)])
    body = {"rule": RULE | {"session_id": str(project.pk)}}

    response = api.post(f"{ALERTS}/preview", body).json()

    (incident,) = response["incidents"]
    assert (incident["level"], incident["value"], incident["threshold"]) == ("critical", 100, 10)
    assert incident["opened_at"].startswith(f"{NOON + timedelta(minutes=5):%Y-%m-%dT%H:%M}")
    assert incident["closed_at"].startswith(f"{NOON + timedelta(minutes=30):%Y-%m-%dT%H:%M}")
    assert (response["step_minutes"], response["is_exact"]) == (5, True)
    assert not AlertRule.objects.for_workspace(workspace).exists()


def test_silence_starts_and_ends(api, project):
    rule = create_alert_rule(project)
    url = f"{ALERTS}/rules/{rule.pk}/silence"

    silenced = api.post(url, {"minutes": 60}).json()["rule"]["silenced_until"]
    rule.refresh_from_db()
    assert rule.silenced_until.isoformat()[:19] == silenced[:19]
    assert timedelta(minutes=59) < rule.silenced_until - timezone.now() <= timedelta(minutes=60)
    assert api.post(url, {"minutes": None}).json()["rule"]["silenced_until"] is None
    assert api.post(url, {"minutes": 0}).status_code == 422
    assert api.post(url, {}).status_code == 422


def test_incidents_and_deliveries_are_listed_newest_first(api, project):
    rule = create_alert_rule(project)
    for hours, level in ((0, "warning"), (1, "critical")):
        AlertIncident(
            workspace_id=rule.workspace_id, rule=rule, level=level, value=hours,
            opened_at=DAY + timedelta(hours=hours),
            closed_at=DAY + timedelta(hours=hours, minutes=10),
        ).save()  # fmt: skip
    first, second = create_delivery(rule), create_delivery(rule, event="recovered")
    base = f"{ALERTS}/rules/{rule.pk}"

    incidents = api.get(f"{base}/incidents").json()
    deliveries = api.get(f"{base}/deliveries", limit=1).json()

    assert [incident["level"] for incident in incidents] == ["critical", "warning"]
    assert [row["id"] for row in deliveries] == [str(second.pk)]
    assert api.get(f"{base}/deliveries", offset=1).json()[0]["id"] == str(first.pk)


def test_unfinished_delivery_is_not_replayed(api, project):
    rule = create_alert_rule(project)
    delivery = create_delivery(rule)

    url = f"{ALERTS}/rules/{rule.pk}/deliveries/{delivery.pk}/replay"

    assert (api.post(url, {}).status_code, api.post(url, {}).json()["code"]) == (
        409,
        "delivery_unfinished",
    )


def test_unsaved_actions_are_tested(api, path):
    response = api.post(f"{path}/test", {"rule": RULE, "actions": [HOOK]})

    assert response.status_code == 200, response.content
    (result,) = response.json()["results"]
    assert result["status"] == "failed"
    assert result["message"].startswith("No connection")
    assert api.get(path).json() == []


@pytest.mark.parametrize("count", [1, 3])
def test_listing_rules_needs_a_constant_number_of_queries(
    api, project, count, django_assert_max_num_queries
):
    for _ in range(count):
        create_alert_action(create_alert_rule(project))

    with django_assert_max_num_queries(6):
        assert len(api.get(ALERTS).json()) == count
