"""Alert pages in Chromium: axe, both widths and themes, and the way from a form to a channel."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from apps.alerts.models import AlertIncident, AlertRule
from apps.deployments.services import webhooks
from apps.tracing.services import ensure_project
from tests.browser.test_accessibility import VARIANTS, find_problems
from tests.factories.alerts import create_alert_action, create_alert_rule, create_delivery
from tests.factories.deployments import create_deployment_webhook
from tests.factories.tracing import ingest, wire_run


@pytest.fixture(autouse=True)
def local_receivers(settings) -> None:
    settings.ALLOW_PRIVATE_ADDRESSES = True


def ingest_incident(workspace) -> None:
    """Thirty traces in the last hours, of which the middle ten fail."""
    now = timezone.now()
    ingest(
        workspace,
        *[
            wire_run(
                start=now - timedelta(minutes=180 - 5 * number),
                error="boom" if 10 <= number < 20 else None,
            )
            for number in range(30)
        ],
    )


def alert_paths(session):
    """Yield the path of every alert page, with and without rows."""
    base, workspace = session.path, session.workspace
    project = ensure_project(workspace.pk, "default")
    yield from (f"{base}/alerts", f"{base}/alerts/new")
    yield f"{base}/projects/p/{project.pk}/alerts"
    ingest_incident(workspace)
    rule = create_alert_rule(
        project, level="critical", last_value=75.0, description="Call the vendor of the model.",
        silenced_until=timezone.now() + timedelta(hours=1), last_error="The query took too long.",
    )  # fmt: skip
    create_alert_rule(project, name="Traffic stopped", is_enabled=False)
    yield f"{base}/alerts/{rule.pk}"
    action = create_alert_action(rule)
    create_alert_action(rule, "slack", url="https://hooks.chat.example/services/T0/B0/secret")
    now = timezone.now()
    for hours, level in ((30, "warning"), (2, "critical")):
        AlertIncident(
            workspace_id=workspace.pk, rule=rule, level=level, value=75.0,
            opened_at=now - timedelta(hours=hours), announced_level=level,
            closed_at=now - timedelta(hours=hours - 1) if level == "warning" else None,
        ).save()  # fmt: skip
    create_delivery(rule, action.pk, status="delivered", response_status=204, attempts=1)
    create_delivery(
        rule, action.pk, status="given_up", attempts=9,
        last_error="The receiver responded with status 503.",
    )  # fmt: skip
    yield from (f"{base}/alerts", f"{base}/alerts/{rule.pk}", f"{base}/alerts/{rule.pk}/edit")
    yield f"{base}/projects/p/{project.pk}/alerts"
    hooks = f"{base}/settings/deployment-webhooks"
    yield hooks
    webhook = create_deployment_webhook(workspace, url="https://ci.example/builds/of/all/agents")
    yield f"{hooks}/{webhook.pk}"
    webhooks.send_test(webhook=webhook)
    yield from (hooks, f"{hooks}/{webhook.pk}")


@VARIANTS
def test_every_alert_page_passes_axe_and_fits_the_viewport(session, variants):
    assert find_problems(session.page, alert_paths(session), variants) == {}


def test_alert_is_previewed_saved_and_notified_by_a_webhook(session):
    ensure_project(session.workspace.pk, "default")
    ingest_incident(session.workspace)
    page = session.goto(f"{session.path}/alerts")
    page.get_by_role("link", name="New alert").click()
    page.get_by_label("Name").fill("Errors")
    page.get_by_label("Runs of").select_option(label="default")
    page.get_by_label("Metric").select_option(label="Error rate (per cent)")
    page.get_by_label("Critical").fill("50")
    page.get_by_role("button", name="Preview").click()
    page.get_by_text("Would have fired 1 time").wait_for()
    page.get_by_role("button", name="Save").click()
    page.get_by_role("heading", name="Errors").wait_for()

    page.get_by_label("Address").fill("http://127.0.0.1:9/hook")
    page.get_by_role("button", name="Add channel").click()
    page.get_by_text("Signing secret of the webhook").wait_for()
    page.get_by_role("button", name="Send a test").click()
    page.get_by_text("1 test notice sent.").wait_for()
    assert page.get_by_role("cell", name="Test").is_visible()

    rule = AlertRule.objects.for_workspace(session.workspace).get()
    assert (rule.aggregation, rule.threshold, rule.warning_threshold) == ("pct", 50.0, None)
