from datetime import UTC, date, datetime, timedelta

import pytest

from apps.audit.models import Entry
from apps.ingest import decoders
from apps.ingest.models import RejectionCount
from apps.ingest.services import ingest_runs
from apps.trace_store.models import RunCount
from apps.usage import meter, quotas, services
from apps.usage.models import LimitType, UsageDay, UsageLimit
from tests.factories.api_keys import key_for
from tests.factories.organizations import MembershipFactory, WorkspaceFactory
from tests.factories.tracing import wire_run

pytestmark = pytest.mark.django_db


def read_date() -> date:
    """The date of today, as a test run may begin on the day before."""
    return datetime.now(UTC).date()


@pytest.fixture(autouse=True)
def _clear_cache():
    quotas.clear_cache()
    yield
    quotas.clear_cache()


def send_runs(client, workspace, *runs, scopes=("ingest",)):
    return client.post(
        "/runs/batch",
        {"post": list(runs)},
        content_type="application/json",
        headers={"X-Api-Key": key_for(workspace, *scopes)},
    )


def set_limit(workspace, kind, value, *, whole_organization=False):
    return services.set_limit(
        organization_id=workspace.organization_id,
        workspace_id=None if whole_organization else workspace.pk,
        limit_type=LimitType(kind),
        limit_value=value,
    )


def read_today(workspace):
    today = read_date()
    return services.list_days(workspace.pk, today, today)[0]


def test_usage_day_update_is_idempotent(client, workspace):
    send_runs(client, workspace, wire_run(), wire_run())
    meter.add(workspace.pk, agent_runs=2, agent_seconds=3.5)
    meter.flush()

    for _ in range(3):
        services.update_usage_days()

    day = read_today(workspace)
    assert (day.runs, day.traces, day.agent_runs, day.agent_seconds) == (2, 2, 2, 3)
    assert day.bytes > 200
    assert UsageDay.objects.for_workspace(workspace).count() == 1


def test_deleted_runs_count_as_used(client, workspace):
    send_runs(client, workspace, wire_run())
    services.update_usage_days()
    RunCount.objects.for_workspace(workspace).delete()

    services.update_usage_days()

    assert read_today(workspace).runs == 1


def test_days_without_usage_are_listed_and_foreign_days_are_not(client, workspace):
    send_runs(client, WorkspaceFactory(), wire_run())
    services.update_usage_days()
    today = read_date()

    days = services.list_days(workspace.pk, today - timedelta(days=2), today)

    assert [(day.day, day.runs) for day in days] == [
        (today - timedelta(days=2), 0), (today - timedelta(days=1), 0), (today, 0),
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["hourly_runs", "monthly_traces", "hourly_bytes"])
def test_runs_beyond_a_limit_are_rejected_with_the_reason(client, workspace, kind):
    limit = set_limit(workspace, kind, 1)
    first = send_runs(client, workspace, wire_run())
    meter.flush()
    quotas.clear_cache()

    rejected = send_runs(client, workspace, wire_run(), wire_run())

    assert first.status_code == 202
    assert rejected.status_code == 429
    body = rejected.json()
    assert body["code"] == "usage_limit_exceeded"
    assert f"of 1 {limit.limit_type.partition('_')[2]} in this" in body["detail"]
    is_hourly = kind.startswith("hourly")
    assert 1 <= int(rejected.headers.get("Retry-After", 0)) <= 60 if is_hourly else True
    assert rejected.headers.get("x-should-retry") == (None if is_hourly else "false")
    rejection = RejectionCount.objects.for_workspace(workspace).get()
    assert (rejection.reason, rejection.count) == ("usage_limit_exceeded", 2)


def test_update_of_a_run_is_accepted_beyond_the_limit(client, workspace):
    started_run = wire_run(end_time=None)
    send_runs(client, workspace, started_run)
    set_limit(workspace, "hourly_runs", 1)

    update = client.patch(
        f"/runs/{started_run['id']}",
        {"outputs": {"a": 1}, "end_time": datetime.now(UTC).isoformat(),
         "trace_id": started_run["trace_id"], "dotted_order": started_run["dotted_order"]},
        content_type="application/json",
        headers={"X-Api-Key": key_for(workspace, "ingest")},
    )  # fmt: skip

    assert update.status_code == 202


def test_organization_limit_sums_and_applies_to_all_workspaces(client, workspace):
    sibling = WorkspaceFactory(organization=workspace.organization)
    send_runs(client, workspace, wire_run())
    set_limit(workspace, "monthly_runs", 1, whole_organization=True)

    rejected = send_runs(client, sibling, wire_run())
    foreign = send_runs(client, WorkspaceFactory(), wire_run())

    assert rejected.status_code == 429
    assert "this organization has used 1 of 1 runs" in rejected.json()["detail"]
    assert foreign.status_code == 202


def test_limit_applies_to_otlp(client, workspace):
    set_limit(workspace, "hourly_runs", 0)

    rejected = client.post(
        "/otel/v1/traces",
        {"resourceSpans": [{"scopeSpans": [{"spans": [{
            "traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174",
            "name": "step", "startTimeUnixNano": str(int(datetime.now(UTC).timestamp() * 1e9)),
        }]}]}]},
        content_type="application/json",
        headers={"X-Api-Key": key_for(workspace, "ingest")},
    )  # fmt: skip

    assert (rejected.status_code, rejected.json()["code"]) == (429, "usage_limit_exceeded")


def test_check_without_limits_takes_no_query(workspace, django_assert_num_queries):
    quotas.check(workspace.pk)

    with django_assert_num_queries(0):
        for _ in range(100):
            quotas.check(workspace.pk)


def test_past_months_count_for_the_month_only(workspace):
    old = read_date().replace(day=1) - timedelta(days=1)
    UsageDay(workspace=workspace, day=old, runs=1000).save(force_insert=True)
    set_limit(workspace, "monthly_runs", 1000)

    assert [use.used for use in quotas.list_limit_usages(workspace.pk)] == [0]


def test_limits_are_set_read_and_deleted_by_the_api(client, workspace):
    headers = {"X-Api-Key": key_for(workspace)}
    body = {"limit_type": "monthly_traces", "limit_value": 5}

    put = client.put("/usage-limits", body, content_type="application/json", headers=headers)
    repeated = client.put(
        "/usage-limits", {**body, "limit_value": 7}, content_type="application/json",
        headers=headers,
    )  # fmt: skip
    limits = client.get("/usage-limits", headers=headers).json()
    current = client.get("/workspaces/current/usage_limits", headers=headers).json()
    deleted = client.delete(f"/usage-limits/{put.json()['id']}", headers=headers)

    assert put.status_code == 200
    assert repeated.json()["id"] == put.json()["id"]
    assert [(limit["limit_type"], limit["limit_value"]) for limit in limits] == [
        ("monthly_traces", 7)
    ]
    assert limits[0]["tenant_id"] == str(workspace.pk)
    assert current["in_reject_set"] is False
    assert [(limit["used"], limit["exceeded"]) for limit in current["limits"]] == [(0, False)]
    assert deleted.status_code == 204
    assert UsageLimit.objects.of_workspace(workspace.pk).count() == 0
    entries = Entry.objects.of_organization(workspace.organization_id).filter(
        target_kind="usage_limit"
    )
    assert [(e.action, e.before, e.after) for e in entries.order_by("at", "id")] == [
        ("usage_limit.set", None, {"limit_value": 5}),
        ("usage_limit.set", {"limit_value": 5}, {"limit_value": 7}),
        ("usage_limit.deleted", {"limit_value": 7}, None),
    ]


@pytest.mark.parametrize(
    "body",
    [
        {"limit_type": "weekly_runs", "limit_value": 1},
        {"limit_type": "monthly_runs", "limit_value": -1},
        {"limit_type": "monthly_runs", "limit_value": 10**30},
        {"limit_type": "monthly_runs"},
        [],
    ],
)
def test_invalid_limit_is_rejected(client, workspace, body):
    headers = {"X-Api-Key": key_for(workspace)}

    response = client.put("/usage-limits", body, content_type="application/json", headers=headers)

    assert response.status_code == 422
    assert UsageLimit.objects.of_workspace(workspace.pk).count() == 0


def test_viewer_cannot_set_a_limit(client, workspace):
    headers = {"X-Api-Key": key_for(workspace, "read")}
    body = {"limit_type": "monthly_runs", "limit_value": 1}

    response = client.put("/usage-limits", body, content_type="application/json", headers=headers)

    assert response.status_code == 403


def test_limit_of_another_workspace_is_404(client, workspace):
    foreign = set_limit(WorkspaceFactory(), "monthly_runs", 1)

    response = client.delete(
        f"/usage-limits/{foreign.pk}", headers={"X-Api-Key": key_for(workspace)}
    )

    assert response.status_code == 404
    assert UsageLimit.objects.filter(pk=foreign.pk).exists()


def test_ingest_service_rejects_runs_beyond_a_limit(workspace):
    set_limit(workspace, "hourly_runs", 0)
    request = decoders.decode_batch(b'{"post": [{"name": "a", "run_type": "chain"}]}')

    with pytest.raises(quotas.UsageLimitExceeded):
        ingest_runs.ingest(workspace.pk, request)


def test_page_shows_days_and_limits_and_sets_one(client, workspace):
    owner = MembershipFactory(organization=workspace.organization, role="owner").user
    client.force_login(owner)
    address = f"/o/{workspace.pk}/settings/usage"

    client.post(address, {"limit_type": "monthly_runs", "limit_value": 12345})
    page = client.get(address)

    assert page.status_code == 200
    assert "12345" in page.content.decode().replace("\u202f", "").replace(",", "")
    assert UsageLimit.objects.of_workspace(workspace.pk).get().limit_value == 12345


def test_applicable_limits_are_listed_once(workspace):
    for _ in range(2):
        WorkspaceFactory(organization=workspace.organization)
    set_limit(workspace, "hourly_runs", 5)
    set_limit(workspace, "monthly_runs", 7, whole_organization=True)

    assert [
        (use.limit_type, use.limit.limit_value) for use in quotas.list_limit_usages(workspace.pk)
    ] == [
        ("hourly_runs", 5),
        ("monthly_runs", 7),
    ]
