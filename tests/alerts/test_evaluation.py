"""Evaluation of rules: incidents, notices, missed evaluations, silence."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.alerts import dispatch
from apps.alerts.metrics import STEP
from apps.alerts.models import AlertAction, AlertIncident, AlertRule
from apps.alerts.services import evaluation, rules
from apps.alerts.services.evaluation import INGEST_DELAY, evaluate, last_window_end
from apps.alerts.services.preview import preview
from apps.alerts.tasks import evaluate as evaluate_task
from apps.trace_store.errors import QueryTooSlow
from apps.tracing.services import delete_project, ensure_project
from apps.webhooks import delivery_queue
from apps.webhooks.models import Delivery
from tests.factories.alerts import create_alert_action, create_alert_rule
from tests.factories.tracing import ingest
from tests.tracing.stats.populations import NOON, build_run

pytestmark = pytest.mark.django_db


def at(minutes: int):
    """The time at which the window that ends `minutes` after noon is evaluated."""
    return NOON + timedelta(minutes=minutes) + INGEST_DELAY


@pytest.fixture
def incident_runs(workspace, project):
    """A run a minute for two hours; those from 30 to 49 minutes after noon fail."""
    ingest(
        workspace,
        *[build_run(minute, error="boom" if 30 <= minute < 50 else None) for minute in range(120)],
    )


@pytest.fixture
def rule(project):
    rule = create_alert_rule(project, evaluated_until=NOON + timedelta(minutes=15))
    create_alert_action(rule)
    return rule


def reload(rule: AlertRule) -> AlertRule:
    return AlertRule.objects.for_workspace(rule.workspace_id).get(pk=rule.pk)


def list_incidents(rule):
    rows = AlertIncident.objects.for_workspace(rule.workspace_id).filter(rule=rule)
    return [
        (
            row.level,
            (row.opened_at - NOON) // timedelta(minutes=1),
            row.closed_at and (row.closed_at - NOON) // timedelta(minutes=1),
        )
        for row in rows.order_by("opened_at")
    ]


def list_notices(rule):
    rows = Delivery.objects.for_workspace(rule.workspace_id).filter(subject_id=rule.pk)
    return [(row.event, row.payload["level"]) for row in rows.order_by("created_at", "pk")]


INCIDENT = [("critical", 35, 70)]
"""A third of the window fails at 35, two thirds at 40; all are well again from 65 on."""
NOTICES = [("fired", "warning"), ("fired", "critical"), ("recovered", "ok")]


def test_incident_is_announced_once_per_level_and_recovers(rule, incident_runs):
    for minutes in range(20, 120, 5):
        evaluate(reload(rule), at(minutes))
        evaluate(reload(rule), at(minutes))  # a second worker

    assert list_incidents(rule) == INCIDENT
    assert list_notices(rule) == NOTICES
    row = reload(rule)
    assert (row.level, row.evaluated_until) == ("ok", NOON + timedelta(minutes=115))
    assert row.due_at == row.evaluated_until + STEP + INGEST_DELAY


@pytest.mark.parametrize("times", [[115], [37, 115], [40, 41, 90, 115]])
def test_missed_evaluations_have_the_same_result(rule, incident_runs, times):
    for minutes in times:
        evaluate(reload(rule), at(minutes))

    assert list_incidents(rule) == INCIDENT
    assert list_notices(rule) == NOTICES


def test_preview_agrees_with_the_evaluation(rule, incident_runs, monkeypatch):
    evaluate(reload(rule), at(115))

    result = preview(rule)

    assert result.is_exact
    assert [
        (incident.level, incident.opened_at, incident.closed_at) for incident in result.incidents
    ] == [("critical", NOON + timedelta(minutes=35), NOON + timedelta(minutes=70))]


def test_preview_of_many_runs_is_measured_from_rollups(rule, incident_runs, monkeypatch):
    monkeypatch.setattr("apps.alerts.services.preview.MAX_COUNTED_RUNS", 50)

    result = preview(rule)

    assert (result.is_exact, result.step) == (False, timedelta(minutes=15))
    (incident,) = result.incidents
    assert incident.opened_at == NOON + timedelta(minutes=45)
    short = preview(create_alert_rule(rule.project, window_minutes=5))
    assert (short.is_exact, short.until - short.since) == (True, timedelta(days=1))


def test_concurrent_evaluation_writes_nothing_twice(rule, incident_runs):
    stale = reload(rule)
    evaluate(reload(rule), at(115))

    evaluate(stale, at(115))

    assert list_incidents(rule) == INCIDENT
    assert list_notices(rule) == NOTICES


def test_rule_that_changes_during_the_evaluation_is_evaluated_again(rule, incident_runs):
    stale = reload(rule)
    rules.update_rule(rule=rule, changes={"name": "new"})

    evaluate(stale, at(115))

    assert list_incidents(rule) == []
    assert reload(rule).due_at <= timezone.now()


def test_only_the_missed_windows_of_a_day_are_evaluated(rule):
    rule.evaluated_until = NOON - timedelta(days=30)

    ends = evaluation.missed_window_ends(rule, NOON)

    assert (len(ends), ends[0], ends[-1]) == (288, NOON - STEP * 287, NOON)
    assert evaluation.missed_window_ends(rule, rule.evaluated_until) == []


def test_last_window_end_waits_for_late_runs():
    assert last_window_end(NOON + timedelta(seconds=29)) == NOON - STEP
    assert last_window_end(NOON + timedelta(seconds=30)) == NOON


def test_silence_hides_an_incident_until_it_ends(rule, incident_runs):
    rules.silence_rule(rule=rule, until=timezone.now() + timedelta(hours=1))
    evaluate(reload(rule), at(45))
    assert list_incidents(rule) == [("critical", 35, None)]
    assert list_notices(rule) == []

    rules.silence_rule(rule=rule, until=None)
    evaluate(reload(rule), at(50))
    evaluate(reload(rule), at(115))

    assert list_notices(rule) == [("fired", "critical"), ("recovered", "ok")]


def test_incident_that_was_silenced_throughout_is_not_announced(rule, incident_runs):
    rules.silence_rule(rule=rule, until=timezone.now() + timedelta(hours=1))

    evaluate(reload(rule), at(115))

    assert list_incidents(rule) == INCIDENT
    assert list_notices(rule) == []


def test_disabled_rule_closes_its_incident_and_is_not_due(rule, incident_runs):
    evaluate(reload(rule), at(45))

    rules.update_rule(rule=rule, changes={"is_enabled": False})

    assert evaluation.evaluate_due(1) == 0
    row = reload(rule)
    assert row.level == "ok"
    assert list_notices(rule)[-1] == ("recovered", "ok")
    enabled, _ = rules.update_rule(rule=row, changes={"is_enabled": True})
    assert enabled.evaluated_until == last_window_end()


def delete_rule(rule):
    rules.delete_rule(rule=rule)


def remove_channel(rule):
    rules.remove_action(rule=rule, action=rule.actions.get())


def replace_channels(rule):
    rules.update_rule(rule=rule, changes={}, actions=[])


def delete_project_of(rule):
    delete_project(project=rule.project)
    rules.close_incidents_of_deleted_scopes()


@pytest.mark.parametrize("end", [delete_rule, remove_channel, replace_channels, delete_project_of])
def test_channel_of_an_open_incident_hears_of_its_end(rule, incident_runs, end):
    key = "R0123456789ABCDEF"
    url = "http://127.0.0.1:9/hook"
    rule.actions.all().delete()
    action = create_alert_action(rule, "pagerduty", url=url, routing_key=key)
    evaluate(reload(rule), at(45))

    end(reload(rule))

    rules.delete_unused_actions()
    bodies = [json.loads(delivery.request.body) for delivery in delivery_queue.claim(10)]
    # The incident was a warning first, and then critical.
    assert sorted(body["event_action"] for body in bodies) == ["resolve", "trigger", "trigger"]
    assert len({body["dedup_key"] for body in bodies}) == 1
    Delivery.unscoped.update(status="delivered")
    rules.delete_unused_actions()
    has_channel = AlertAction.objects.for_workspace(rule.workspace_id).filter(pk=action.pk).exists()
    assert has_channel == (end is delete_project_of)


def test_channels_that_are_sent_again_hear_of_no_end(rule, incident_runs):
    rule.actions.all().delete()
    action = create_alert_action(rule, "pagerduty", url="http://127.0.0.1:9/", routing_key="R" * 16)
    evaluate(reload(rule), at(45))
    fields = {"target": "pagerduty", "config": action.config}

    rules.update_rule(rule=reload(rule), changes={}, actions=[fields])

    assert [notice for notice in list_notices(rule) if notice[0] == "recovered"] == []
    assert [other.config for other in rule.actions.all()] == [action.config]


def test_absent_traffic_fires(project, incident_runs):
    rule = create_alert_rule(
        project, attribute="run_count", aggregation="count", operator="lte", threshold=0.0,
        warning_threshold=None, evaluated_until=NOON + timedelta(minutes=60),
    )  # fmt: skip

    evaluate(rule, at(140))

    assert list_incidents(rule) == [("critical", 135, None)]


def test_due_rules_are_evaluated_and_deleted_scopes_are_not(rule, project):
    AlertRule.unscoped.update(evaluated_until=last_window_end() - STEP)
    other = create_alert_rule(project, name="disabled", is_enabled=False)

    assert evaluation.evaluate_due(5) == 1
    assert evaluation.evaluate_due(5) == 0

    assert reload(rule).evaluated_until == last_window_end()
    assert reload(other).evaluated_until == other.evaluated_until
    AlertRule.unscoped.update(due_at=timezone.now())
    project.deleted_at = timezone.now()
    project.save()
    assert evaluation.evaluate_due(5) == 0


def test_failure_is_shown_and_made_up_for(rule, incident_runs, monkeypatch):
    def fail(*_):
        raise QueryTooSlow

    with monkeypatch.context() as patch:
        patch.setattr(evaluation, "measure", fail)
        assert evaluation.evaluate_due(5) == 1
    row = reload(rule)
    assert row.last_error == QueryTooSlow.detail
    assert row.evaluated_until == NOON + timedelta(minutes=15)
    assert row.due_at > timezone.now()

    evaluate(row, at(115))

    assert reload(rule).last_error == ""
    assert list_incidents(rule) == INCIDENT


def name_evaluations(monkeypatch, seconds):
    """Replace evaluations: rules whose names begin so take that long; return their names."""
    clock, names = [0.0], []

    def take_time(rule):
        names.append(rule.name)
        clock[0] += seconds[rule.name[:4]]

    monkeypatch.setattr(evaluation, "evaluate", take_time)
    monkeypatch.setattr(evaluation.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(evaluation, "_turns", evaluation._Turns())
    return names


def test_slow_rules_of_one_organization_do_not_delay_those_of_another(
    project, other_workspace, monkeypatch
):
    other_project = ensure_project(other_workspace.pk, "other")
    start = timezone.now() - timedelta(minutes=1)
    for number in range(5):
        due_at = start + timedelta(seconds=number)
        create_alert_rule(project, name=f"slow {number}", due_at=due_at)
    for number in range(2):
        due_at = start + timedelta(seconds=10 + number)
        create_alert_rule(other_project, name=f"fast {number}", due_at=due_at)
    names = name_evaluations(monkeypatch, {"slow": 4.0, "fast": 0.1})

    assert evaluation.evaluate_due(10) == 5

    # With nothing else due, the slow ones go on.
    assert names == ["slow 0", "fast 0", "fast 1", "slow 1", "slow 2"]


def test_rules_of_one_organization_are_evaluated_by_one_thread(project, other_workspace):
    start = timezone.now() - timedelta(minutes=1)
    for number in range(2):
        due_at = start + timedelta(seconds=number)
        create_alert_rule(project, name=f"own {number}", due_at=due_at)
    create_alert_rule(ensure_project(other_workspace.pk, "other"), name="other")
    turns = evaluation._Turns()

    claimed = [turns.claim() for _ in range(3)]
    turns.end(claimed[0], 0.0)

    assert [rule and rule.name for rule in claimed] == ["own 0", "other", None]
    assert turns.claim().name == "own 1"


def test_each_due_organization_has_a_task(project, other_workspace, monkeypatch):
    sent = []
    monkeypatch.setattr(dispatch, "evaluate_rules", lambda: sent.append("task"))
    create_alert_rule(project)
    create_alert_rule(project)
    create_alert_rule(ensure_project(other_workspace.pk, "other"))

    evaluate_task()

    assert sent == ["task"]
    assert evaluation.count_due_organizations(3) == 0


def test_claim_reads_the_index_of_due_rules(rule):
    with (
        CaptureQueriesContext(
            connection,
        ) as queries,
        connection.cursor() as cursor,
    ):
        evaluation._claim()
        (statement,) = (q["sql"] for q in queries if "SKIP LOCKED" in q["sql"])
        # In a small table, reading and sorting all rows is cheaper.
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("SET LOCAL enable_sort = off")
        cursor.execute(f"EXPLAIN {statement}")
        plan = "\n".join(row[0] for row in cursor.fetchall())

    assert "alert_rule_due" in plan
