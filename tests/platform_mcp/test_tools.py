"""What the tools read and change."""

from __future__ import annotations

from datetime import date

import pytest

from apps.api_keys.services import issue_key
from apps.audit.models import Entry
from apps.core.ids import uuid7
from apps.core.json import dumps_text
from apps.datasets.services import embedded_content
from apps.evaluators.models import Evaluation
from apps.experiment_jobs.models import ExperimentJob
from apps.platform_mcp import api
from apps.platform_mcp.pages import MAX_CHARS
from apps.prompts.models import Commit
from apps.trace_store.postgres import payload_storage
from apps.trace_store.postgres.postprocess.processor import process_all
from apps.tracing.services import create_project
from apps.usage.models import UsageDay
from tests.factories.api_keys import api_key_row, key_for
from tests.factories.datasets import make_dataset
from tests.factories.deployments import LogLineFactory
from tests.factories.organizations import WorkspaceFactory
from tests.factories.prompts import create_prompt, model_manifest
from tests.factories.tracing import ingest, wire_run
from tests.tracing.conftest import make_api

__all__ = ["make_api"]

pytestmark = pytest.mark.django_db


@pytest.fixture
def mcp(connect, workspace):
    return connect(key_for(workspace))


@pytest.fixture
def trace(workspace):
    """A trace of the thread `t1` with a failed model call."""
    root = wire_run(extra={"metadata": {"thread_id": "t1"}}, **MESSAGES)
    child = wire_run(root, name="model", run_type="llm", error="overloaded")
    ingest(workspace, root, child)
    return root


MESSAGES = {
    "inputs": {"messages": [{"role": "user", "content": "why?"}]},
    "outputs": {"messages": [{"role": "assistant", "content": "because"}]},
}


# Traces


def test_runs_are_searched(mcp, trace):
    every = mcp.call("fetch_runs", project_name="default", limit=10)
    failed = mcp.call("fetch_runs", project_name='["default"]', limit=10, error="true")
    roots = mcp.call("fetch_runs", project_name="acme/default", limit=10, is_root="true")
    named = mcp.call(
        "fetch_runs", project_name="default", limit=1, filter='eq(name, "model")', run_type="llm"
    )

    assert (len(every["runs"]), every["page_number"], every["total_pages"]) == (2, 1, 1)
    assert [run["error"] for run in failed["runs"]] == ["overloaded"]
    assert [run["id"] for run in roots["runs"]] == [trace["id"]]
    assert [run["name"] for run in named["runs"]] == ["model"]
    assert "no project 'missing'" in mcp.failure("fetch_runs", project_name="missing", limit=1)
    assert "filter" in mcp.failure("fetch_runs", project_name="default", limit=1, filter="eq(")


def test_large_contents_are_read_up_to_a_limit(mcp, trace, workspace, monkeypatch):
    monkeypatch.setattr(payload_storage, "MAX_LOADED_BYTES", 0)
    monkeypatch.setattr(embedded_content, "MAX_LOADED_BYTES", 0)
    dataset = make_dataset(workspace, {"question": "why?"})
    runs = {"project_name": "default", "limit": 10}
    examples = {"dataset_id": str(dataset.pk)}

    found = mcp.call("fetch_runs", **runs)
    listed = mcp.call("list_examples", **examples)

    by_id = {run["id"]: run for run in found["runs"]}
    assert by_id[trace["id"]]["outputs"] == MESSAGES["outputs"]
    assert [example["inputs"] for example in listed["examples"]] == [{"question": "why?"}]
    monkeypatch.setattr(api, "MAX_RESPONSE_BYTES", 100)
    assert "ask for fewer" in mcp.failure("fetch_runs", **runs)
    assert "ask for fewer" in mcp.failure("list_examples", **examples)


def test_a_run_and_a_trace_are_read(mcp, trace):
    run = mcp.call("read_run", run_id=trace["id"])

    assert (run["id"], run["inputs"]) == (trace["id"], MESSAGES["inputs"])
    for selection in ({"project_name": "default"}, {"trace_id": trace["id"]}):
        found = mcp.call("fetch_trace", **selection)
        assert (found["trace_id"], found["outputs"]) == (trace["id"], MESSAGES["outputs"])
    assert mcp.failure("read_run", run_id=str(uuid7())) == "No such run."


def test_a_conversation_is_read(mcp, trace):
    history = mcp.call("get_thread_history", thread_id="t1", project_name="default", page_number=1)

    assert [message["content"] for message in history["result"]] == ["why?", "because"]
    assert history["next_cursor"] is None
    assert mcp.result("get_thread_history", thread_id="t2", project_name="default")["isError"]


def test_statistics(mcp, trace):
    stats = mcp.call("get_project_runs_stats", project_name="default")

    assert (stats["run_count"], stats["project_name"]) == (2, "default")
    assert "run_facets" not in stats
    assert mcp.failure("get_project_runs_stats") == "Name a project or a trace."


def test_projects_are_listed(mcp, trace, workspace):
    [project] = mcp.call("list_projects", project_name="def")["projects"]
    [whole] = mcp.call("list_projects", more_info="true")["projects"]

    assert project == {"name": "default", "project_id": whole["id"]}
    assert whole["run_count"] == 2


# Sizes


def test_results_have_a_size(mcp, workspace):
    ingest(workspace, *(wire_run(inputs={"text": "é\\" * 50_000}) for _ in range(5)))

    pages = mcp.call("fetch_runs", project_name="default", limit=10, preview_chars=0)
    [run] = mcp.call("fetch_runs", project_name="default", limit=1)["runs"]
    whole = mcp.call("read_run", run_id=run["id"])

    assert pages["total_pages"] > 1
    assert run["inputs"]["text"].endswith("… (+99850 chars)")
    assert whole["_truncated"] is True
    for result in (pages, whole):
        assert len(dumps_text(result)) <= MAX_CHARS


def test_pages_follow_each_other(mcp, workspace):
    ingest(workspace, *(wire_run(name=f"run {n}") for n in range(6)))
    names, page_number, total = [], 0, 1
    while page_number < total:
        page_number += 1
        page = mcp.call(
            "fetch_runs",
            project_name="default",
            limit=100,
            page_number=page_number,
            max_chars_per_page=5000,
        )
        names += [run["name"] for run in page["runs"]]
        total = page["total_pages"]

    assert total > 1
    assert sorted(names) == [f"run {n}" for n in range(6)]


def test_objects_of_many_members_are_cut(mcp, workspace):
    ingest(workspace, run := wire_run(inputs={f"key {n}": n for n in range(20_000)}))

    result = mcp.call("read_run", run_id=run["id"])

    assert set(result) == {"_truncated", "truncated_json"}
    assert len(dumps_text(result)) <= MAX_CHARS


# Datasets and experiments


def test_datasets_and_examples_are_read(mcp, workspace):
    dataset = make_dataset(workspace, {"q": 1}, {"q": 2}, name="questions")

    [listed] = mcp.call("list_datasets", dataset_name_contains="quest")["datasets"]
    by_name = mcp.call("read_dataset", dataset_name="questions")["dataset"]
    examples = mcp.call("list_examples", dataset_name="questions", limit=1, offset=1)["examples"]
    example = mcp.call("read_example", example_id=examples[0]["id"])["example"]

    assert listed["id"] == by_name["id"] == str(dataset.pk)
    assert [row["inputs"] for row in examples] == [example["inputs"]]
    by_ids = mcp.call("list_examples", example_ids=dumps_text([example["id"]]))
    assert [row["id"] for row in by_ids["examples"]] == [example["id"]]
    assert mcp.failure("list_examples") == "Name the dataset, by id or by name."


def test_a_dataset_is_created_and_changed(mcp, workspace):
    created = mcp.call(
        "create_dataset",
        dataset_name="new",
        description="d",
        examples=[{"inputs": {"q": 1}, "outputs": {"a": 1}, "split": "test"}],
    )
    [example_id] = created["example_ids"]

    mcp.call("update_examples", updates=[{"id": example_id, "outputs": {"a": 2}}])

    example = mcp.call("read_example", example_id=example_id)["example"]
    assert (example["inputs"], example["outputs"]) == ({"q": 1}, {"a": 2})
    assert mcp.result("create_dataset", dataset_name="new")["isError"]
    assert "once" in mcp.failure("update_examples", updates=[{"id": example_id}] * 2)


def test_an_experiment_is_run_on_a_deployment(mcp, workspace, agent):
    make_dataset(workspace, {"q": 1}, name="questions")

    job = mcp.call(
        "run_experiment",
        dataset_name="questions",
        deployment=agent.name,
        experiment_prefix="mcp",
        repetitions=2,
    )
    progress = mcp.call("get_experiment_job", job_id=job["id"])
    [experiment] = mcp.call("list_experiments", reference_dataset_name="questions")["experiments"]

    assert (progress["total"], progress["done"]) == (2, 0)
    assert experiment["experiment_id"] == job["experiment_id"]
    assert experiment["name"].startswith("mcp")
    assert ExperimentJob.unscoped.get().deployment_id == agent.pk
    text = mcp.failure("run_experiment", dataset_name="questions", deployment="missing")
    assert text == "There is no deployment 'missing'."


# Evaluators


@pytest.fixture
def scored(workspace, make_api):
    """A rule with a function that failed for the row of an experiment; returns its id."""
    dataset = make_dataset(workspace, {"q": 1}, name="questions")
    create_project(workspace_id=workspace.pk, name="try-1", reference_dataset_id=dataset.pk)
    function = {"code": "def perform_eval(run): return run['nothing']", "language": "python"}
    body = {"display_name": "Exact", "dataset_id": str(dataset.pk), "code_evaluators": [function]}
    rule = make_api(workspace).post("/runs/rules", body).json()
    ingest(workspace, wire_run(session_name="try-1"))
    process_all()
    Evaluation.unscoped.update(status="failed", error="KeyError: 'nothing'", attempt=1)
    return rule["id"]


def test_evaluators_are_listed_and_run_on_an_experiment(mcp, scored):
    listed = mcp.call("list_evaluators", dataset_name="questions")
    logs = mcp.call("get_evaluator_logs", rule_id=scored, status="failed")["logs"]

    assert listed["total_count"] == 1
    [rule] = listed["evaluators"]
    assert (rule["rule_id"], rule["display_name"], rule["evaluator_type"]) == (
        scored,
        "Exact",
        "code",
    )
    assert [(entry["status"], entry["error"]) for entry in logs] == [
        ("failed", "KeyError: 'nothing'")
    ]
    result = mcp.call("evaluate_experiment", experiment_name="try-1", only_failed="true")
    assert result == {"evaluation_count": 1}
    assert Evaluation.unscoped.get().status == "pending"
    assert mcp.call("evaluate_experiment", experiment_name="try-1", rule_ids=scored)
    assert "by id or by name" in mcp.failure("evaluate_experiment")
    assert mcp.failure("get_evaluator_logs", rule_id=str(uuid7()))
    assert mcp.call("list_evaluators", project_name="try-1")["total_count"] == 0


# Prompts


def test_a_prompt_is_created_read_and_committed(mcp, workspace):
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Answer {question}"},
    ]

    first = mcp.call("push_prompt", prompt_name="helper", messages=messages)
    found = mcp.call("get_prompt_by_name", prompt_name="helper")
    messages[0]["content"] = "Be kind."
    second = mcp.call(
        "push_prompt",
        prompt_name="helper",
        messages=messages,
        parent_commit=first["commit_hash"],
        description="kinder",
    )
    earlier = mcp.call("get_prompt_by_name", prompt_name=f"helper:{first['commit_hash']}")

    assert found["commit_hash"] == earlier["commit_hash"] == first["commit_hash"]
    assert found["manifest"]["kwargs"]["input_variables"] == ["question"]
    assert earlier["manifest"] == found["manifest"]
    assert Commit.unscoped.count() == 2
    stale = mcp.failure(
        "push_prompt",
        prompt_name="helper",
        messages=[{"role": "user", "content": "x"}],
        parent_commit=first["commit_hash"],
    )
    assert "commit" in stale
    assert second["commit_hash"] != first["commit_hash"]
    [prompt] = mcp.call("list_prompts")["prompts"]
    assert (prompt["repo_handle"], prompt["is_public"]) == ("helper", False)


def test_messages_keep_the_model_of_a_prompt(mcp, workspace):
    create_prompt(workspace, "helper")
    mcp.call("push_prompt", prompt_name="helper", manifest=dumps_text(model_manifest()))

    messages = [{"role": "user", "content": "New {question}"}]
    mcp.call("push_prompt", prompt_name="helper", messages=messages)

    manifest = mcp.call("get_prompt_by_name", prompt_name="helper")["manifest"]
    assert manifest["kwargs"]["last"] == model_manifest()["kwargs"]["last"]
    assert "New {question}" in dumps_text(manifest)


@pytest.mark.parametrize(
    "arguments",
    [
        {"prompt_name": "p"},
        {"prompt_name": "p", "manifest": {}, "messages": [{"role": "user", "content": "x"}]},
        {"prompt_name": "a/b/c", "manifest": {}},
        {"prompt_name": "other/p", "manifest": {}},
        {"prompt_name": "p:latest", "manifest": {}},
        {"prompt_name": "p", "messages": [{"role": "user", "content": "{"}]},
        {"prompt_name": "p", "messages": [{"role": "wizard", "content": "x"}]},
        {"prompt_name": "P!", "messages": [{"role": "user", "content": "x"}]},
        {"prompt_name": "p", "manifest": {"not": "a prompt"}},
    ],
)
def test_prompts_that_cannot_be_committed_are_refused(mcp, arguments):
    mcp.failure("push_prompt", **arguments)

    assert not Commit.unscoped.exists()


def test_changes_are_in_the_audit_log_of_the_key(mcp, workspace):
    mcp.call("create_dataset", dataset_name="d")

    entries = Entry.objects.of_organization(workspace.organization_id)
    entry = entries.get(action="dataset.created")
    assert entry.actor_id == api_key_row(mcp.client.defaults["HTTP_X_API_KEY"]).pk


# Deployments and usage


def test_status_and_logs_of_a_deployment(mcp, agent):
    revision = agent.active_revision
    LogLineFactory(revision=revision, message="first", kind="deploy")
    LogLineFactory(revision=revision, message="second", kind="deploy", level="ERROR")
    LogLineFactory(revision=revision, message="built")

    [listed] = mcp.call("list_deployments", name_contains=agent.name)["deployments"]
    status = mcp.call("get_deployment", deployment=agent.name)
    logs = mcp.call("get_deployment_logs", deployment=agent.name)["logs"]
    errors = mcp.call("get_deployment_logs", deployment=str(agent.pk), level="ERROR")["logs"]

    assert listed["id"] == status["id"] == str(agent.pk)
    assert status["revisions"][0]["id"] == str(agent.active_revision.pk)
    assert [line["message"] for line in logs] == ["second", "first"]
    assert [line["message"] for line in errors] == ["second"]
    [built] = mcp.call("get_deployment_logs", deployment=agent.name, kind="build")["logs"]
    assert built["message"] == "built"


def test_usage_of_all_workspaces_of_the_organization(connect, workspace):
    sister = WorkspaceFactory(organization=workspace.organization, name="sister")
    stranger = WorkspaceFactory()
    for row, traces in ((workspace, 2), (sister, 3), (stranger, 5)):
        UsageDay.unscoped.create(workspace=row, day=date(2026, 9, 30), traces=traces)
    _, key = issue_key(organization=workspace.organization, name="org", scopes=["admin"])
    mcp = connect(key)
    mcp.client.defaults["HTTP_X_TENANT_ID"] = str(workspace.pk)
    span = {"starting_on": "2026-09-01T00:00:00Z", "ending_before": "2026-10-01T00:00:00Z"}

    usage = mcp.call("get_billing_usage", **span)["usage"]
    one = mcp.call("get_billing_usage", **span, workspace="sister")["usage"]

    [traces] = [metric for metric in usage if metric["billable_metric_id"] == "traces"]
    assert traces["value"] == 5
    assert traces["groups"] == {
        str(workspace.pk): {"workspace_name": workspace.name, "value": 2},
        str(sister.pk): {"workspace_name": "sister", "value": 3},
    }
    assert {pk for metric in one for pk in metric["groups"]} == {str(sister.pk)}
    reversed_span = {"starting_on": span["ending_before"], "ending_before": span["starting_on"]}
    assert "ending_before" in mcp.failure("get_billing_usage", **reversed_span)
