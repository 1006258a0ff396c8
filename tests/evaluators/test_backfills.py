"""Rules are applied to earlier runs, a page at a time, within the limits of the rule."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from django.db import OperationalError, connections, transaction
from django.utils import timezone

from apps.evaluators.code.process import CodeReply
from apps.evaluators.models import Evaluation, Evaluator, EvaluatorRule, RuleBackfill
from apps.evaluators.services import backfills, spend
from apps.tracing.services import ensure_project
from tests.evaluators.conftest import add_run, create_rule, run_code
from tests.evaluators.test_code_evaluations import replies
from tests.factories.organizations import WorkspaceFactory

__all__ = ["replies"]

pytestmark = pytest.mark.django_db
FUNCTION = {"code": "def perform_eval(run): return 1"}
DAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=3)


@pytest.fixture
def earlier(workspace, project):
    """Return ids of five runs, one an hour, that were stored before any rule."""
    return [
        str(add_run(workspace, project, start=DAY + timedelta(hours=hour))) for hour in range(5)
    ]


@pytest.fixture
def rule(api, project, earlier):
    """Return a function that creates a rule of the project."""

    def create(**fields):
        body = {"session_id": str(project.pk), "code_evaluators": [FUNCTION]} | fields
        return create_rule(api, **body)

    return create


def evaluated() -> set[str]:
    return {str(run_id) for run_id in Evaluation.unscoped.values_list("run_id", flat=True)}


def start(api, rule, first: datetime = DAY, **fields):
    body = {"start_time": first.isoformat()} | fields
    return api.post(f"/runs/rules/{rule['id']}/backfill", body)


def test_runs_of_the_range_are_evaluated_and_progress_is_shown(
    api, rule, earlier, monkeypatch, replies
):
    monkeypatch.setattr(backfills, "PAGE_SIZE", 2)
    created = rule()
    url = f"/runs/rules/{created['id']}"
    end = (DAY + timedelta(hours=3)).isoformat()

    response = start(api, created, DAY + timedelta(hours=1), end_time=end)

    assert response.status_code == 202, response.content
    assert (response.json()["status"], response.json()["progress"]) == ("running", 0.0)
    assert not evaluated()
    backfills.advance()
    assert evaluated() == {earlier[2], earlier[3]}
    running = api.get(f"{url}/backfill").json()
    assert (running["status"], running["progress"]) == ("running", 0.5)
    assert (running["run_count"], running["waiting_count"]) == (2, 2)
    read = api.get("/runs/rules", include_backfill_progress=True).json()[0]
    assert (read["backfill_status"], read["backfill_progress"]) == ("running", 0.5)
    assert api.get(url).json()["backfill_progress"] is None
    backfills.advance()
    backfills.advance()
    assert evaluated() == set(earlier[1:4])
    done = api.get(f"{url}/backfill").json()
    assert (done["status"], done["progress"], done["run_count"]) == ("completed", 1.0, 3)
    while run_code():
        pass
    logs = api.get(f"{url}/logs/v2", backfill=True).json()["logs"]
    assert {entry["run_id"] for entry in logs} == set(earlier[1:4])
    assert {entry["evaluators"]["outcome"] for entry in logs} == {"success"}


def test_new_rule_has_a_backfill_from_its_time(api, rule, earlier):
    created = rule(backfill_from=(DAY + timedelta(hours=3)).isoformat())
    assert created["backfill_status"] == "running"

    backfills.advance()

    assert evaluated() == set(earlier[3:])
    read = api.get(f"/runs/rules/{created['id']}").json()
    assert (read["backfill_status"], read["backfill_error"]) == ("completed", None)
    echoed = api.patch(f"/runs/rules/{created['id']}", {"backfill_from": read["backfill_from"]})
    assert echoed.json()["backfill_id"] == read["backfill_id"]
    moved = api.patch(f"/runs/rules/{created['id']}", {"backfill_from": DAY.isoformat()})
    assert moved.json()["backfill_id"] != read["backfill_id"]
    backfills.advance()
    assert evaluated() == set(earlier)


def test_filters_and_sample_of_the_rule_apply(api, rule, workspace, project, earlier):
    other = str(add_run(workspace, project, name="other", start=DAY))
    created = rule(filter='eq(name, "other")')
    start(api, created)
    backfills.advance()
    assert evaluated() == {other}
    Evaluation.unscoped.all().delete()
    api.patch(f"/runs/rules/{created['id']}", {"filter": None, "sampling_rate": 0})

    start(api, created)
    backfills.advance()

    assert not evaluated()


@pytest.mark.usefixtures("earlier")
def test_rule_of_a_dataset_goes_back_over_its_experiments(api, dataset, experiment):
    run_id = str(add_run(experiment.workspace, experiment, start=DAY))
    body = {"dataset_id": str(dataset.pk), "code_evaluators": [FUNCTION]}
    created = create_rule(api, **body)
    assert not evaluated()

    start(api, created, DAY - timedelta(days=1))
    backfills.advance()

    assert evaluated() == {run_id}


def test_cancelled_backfill_drops_what_waits(api, rule, monkeypatch, earlier, replies):
    monkeypatch.setattr(backfills, "PAGE_SIZE", 2)
    created = rule()
    url = f"/runs/rules/{created['id']}/backfill"
    assert api.delete(url).json()["code"] == "backfill_not_found"
    start(api, created)
    backfills.advance()
    run_code()
    backfills.advance()

    response = api.delete(url)

    assert (response.status_code, response.json()["status"]) == (200, "cancelled")
    assert set(Evaluation.unscoped.values_list("status", flat=True)) == {"succeeded"}
    backfills.advance()
    assert len(evaluated()) == 2
    again = start(api, created)
    assert again.json()["status"] == "running"


def test_done_backfill_stays_done(api, rule, replies, earlier):
    created = rule(backfill_from=DAY.isoformat())
    backfills.advance()
    while run_code():
        pass

    response = api.delete(f"/runs/rules/{created['id']}/backfill")

    assert response.json()["status"] == "completed"
    assert len(evaluated()) == 5


def test_day_without_calls_left_waits_for_the_next(api, rule, replies, earlier, monkeypatch):
    created = rule(max_calls_per_day=2, backfill_from=DAY.isoformat())
    for _ in range(3):
        backfills.advance()
        while run_code():
            pass

    assert evaluated() == set(earlier[3:])
    assert api.get(f"/runs/rules/{created['id']}").json()["backfill_status"] == "running"
    assert not Evaluation.unscoped.exclude(status="succeeded").exists()
    tomorrow = spend.today() + timedelta(days=1)
    monkeypatch.setattr(spend, "today", lambda: tomorrow)
    backfills.advance()
    assert evaluated() == set(earlier[1:])


def test_backlog_of_a_rule_is_bounded(api, rule, earlier, monkeypatch):
    monkeypatch.setattr(backfills, "MAX_WAITING", 3)
    rule(backfill_from=DAY.isoformat())

    for _ in range(3):
        backfills.advance()

    assert evaluated() == set(earlier[2:])


def test_backfill_that_fails_keeps_no_other_from_its_turn(api, rule, earlier, monkeypatch, caplog):
    broken = rule(backfill_from=DAY.isoformat())
    read_page = backfills._read_page

    def read(backfill, *arguments):
        if str(backfill.rule_id) == broken["id"]:
            raise RuntimeError
        return read_page(backfill, *arguments)

    monkeypatch.setattr(backfills, "_read_page", read)
    rule(backfill_from=DAY.isoformat())

    backfills.advance()

    assert evaluated() == set(earlier)
    assert "could not be advanced" in caplog.text


@pytest.mark.django_db(transaction=True)
def test_rule_does_not_change_while_a_page_is_enqueued(api, rule, earlier, monkeypatch):
    created = rule(backfill_from=DAY.isoformat())
    read_page = backfills._read_page
    lock = EvaluatorRule.unscoped.select_for_update(no_key=True, nowait=True)

    def change():
        try:
            with transaction.atomic():
                return lock.get(pk=created["id"])
        except OperationalError:
            return None
        finally:
            connections.close_all()

    def read(*arguments):
        assert threads.submit(change).result() is None
        return read_page(*arguments)

    monkeypatch.setattr(backfills, "_read_page", read)
    with ThreadPoolExecutor(1) as threads:
        backfills.advance()

    assert evaluated() == set(earlier)


def test_evaluated_runs_stay_as_they_are(api, rule, earlier, replies, project):
    created = rule()
    run_id = str(add_run(project.workspace, project, start=DAY))
    Evaluation.unscoped.update(due_at=timezone.now())
    run_code()
    replies["reply"] = CodeReply(result=0.5)

    start(api, created)
    backfills.advance()
    while run_code():
        pass

    scores = {str(row.run_id): row.scores[0]["score"] for row in Evaluation.unscoped.all()}
    assert scores == dict.fromkeys(earlier, 0.5) | {run_id: 1.0}


def test_disabled_rule_ends_its_backfill(api, rule, earlier):
    created = rule(backfill_from=DAY.isoformat())
    api.patch(f"/runs/rules/{created['id']}", {"is_enabled": False})

    backfills.advance()

    assert RuleBackfill.unscoped.get().status == "cancelled"
    assert not evaluated()
    refused = start(api, created)
    assert (refused.status_code, "enable it first" in refused.json()["detail"]) == (422, True)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"start_time": "yesterday"}, 422),
        ({"start_time": "2999-01-01T00:00:00Z"}, 422),
        ({"start_time": "2026-01-02T00:00:00Z", "end_time": "2026-01-01T00:00:00Z"}, 422),
        ({"start_time": "2026-01-01T00:00:00Z", "more": 1}, 422),
        ({"start_time": "0001-01-01T00:00:00+14:00"}, 422),
    ],
)
def test_bad_range_is_refused(api, rule, body, status):
    created = rule()

    response = api.post(f"/runs/rules/{created['id']}/backfill", body)

    assert response.status_code == status, response.content
    assert not RuleBackfill.unscoped.exists()


def test_one_backfill_runs_at_a_time(api, rule):
    created = rule(backfill_from=DAY.isoformat())

    response = start(api, created)

    assert (response.status_code, response.json()["code"]) == (409, "backfill_running")


def test_rights_and_tenants(api, make_api, workspace, other_workspace, rule):
    created = rule()
    url = f"/runs/rules/{created['id']}/backfill"
    body = {"start_time": DAY.isoformat()}

    other = make_api(other_workspace)
    for response in (other.post(url, body), other.get(url), other.delete(url)):
        assert response.status_code == 404
    assert make_api(workspace, "read").post(url, body).status_code == 403
    assert EvaluatorRule.unscoped.get().backfills.count() == 0


@pytest.fixture
def waiting(rule, monkeypatch):
    """Ten older backfills of another organization, which all wait for calls of the next day."""
    monkeypatch.setattr(backfills, "MAX_STEPS", 3)
    other = WorkspaceFactory()
    project = ensure_project(other.pk, "other")
    evaluator = Evaluator(workspace=other, name="e", type="code", code=FUNCTION["code"])
    evaluator.save(force_insert=True)
    for number in range(10):
        row = EvaluatorRule(
            workspace=other,
            name=f"r{number}",
            project=project,
            evaluator=evaluator,
            max_calls_per_day=0,
        )
        row.save(force_insert=True)
        RuleBackfill(
            workspace=other, rule=row, started_from=DAY, started_until=timezone.now()
        ).save(force_insert=True)


def test_waiting_backfills_of_an_organization_do_not_stop_those_of_others(
    waiting, api, rule, earlier
):
    start(api, rule())

    backfills.advance()

    assert evaluated() == set(earlier)
