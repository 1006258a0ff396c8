"""No tool finds rows of another workspace, whatever ids and names it gets."""

from __future__ import annotations

import pytest

from apps.core.json import dumps_text
from apps.platform_mcp.tools import TOOLS
from tests.factories.api_keys import key_for
from tests.other_tenant import OtherTenant

pytestmark = [pytest.mark.django_db, pytest.mark.exhaustive]
SENTINEL = "sentinel"


def calls(values):
    """Arguments of each tool that name the rows of the other tenant."""
    ids = {name: str(value) for name, value in values.items()}
    by_name = {"project_name": SENTINEL}
    template = [{"role": "user", "content": "x"}]
    return [
        ("list_projects", {"more_info": True, "limit": 100}),
        ("list_projects", {"more_info": True, "reference_dataset_id": ids["dataset_id"]}),
        ("fetch_runs", {**by_name, "limit": 100}),
        ("fetch_runs", {"project_name": "default", "trace_id": ids["trace_id"], "limit": 100}),
        ("read_run", {"run_id": ids["run_id"]}),
        ("fetch_trace", by_name),
        ("fetch_trace", {"trace_id": ids["trace_id"]}),
        ("get_thread_history", {"thread_id": ids["thread_key"], **by_name}),
        ("get_project_runs_stats", by_name),
        ("get_project_runs_stats", {"trace_id": ids["trace_id"]}),
        ("list_datasets", {"limit": 100}),
        ("list_datasets", {"dataset_ids": ids["dataset_id"]}),
        ("read_dataset", {"dataset_id": ids["dataset_id"]}),
        ("read_dataset", {"dataset_name": SENTINEL}),
        ("list_examples", {"dataset_id": ids["dataset_id"]}),
        ("list_examples", {"example_ids": ids["example_id"]}),
        ("read_example", {"example_id": ids["example_id"]}),
        ("update_examples", {"updates": [{"id": ids["example_id"], "outputs": {"a": 1}}]}),
        ("list_experiments", {"reference_dataset_id": ids["dataset_id"]}),
        ("run_experiment", {"dataset_id": ids["dataset_id"], "deployment": SENTINEL}),
        ("run_experiment", {"dataset_id": ids["dataset_id"], "deployment": ids["deployment_id"]}),
        ("get_experiment_job", {"job_id": ids["job_id"]}),
        ("list_evaluators", {}),
        ("list_evaluators", {"dataset_id": ids["dataset_id"]}),
        ("get_evaluator_logs", {"rule_id": ids["evaluator_rule_id"]}),
        ("evaluate_experiment", {"experiment_id": ids["experiment_id"]}),
        ("evaluate_experiment", {"experiment_name": SENTINEL}),
        ("list_prompts", {"limit": 100}),
        ("get_prompt_by_name", {"prompt_name": SENTINEL}),
        ("get_prompt_by_name", {"prompt_name": f"{SENTINEL}/{SENTINEL}"}),
        ("push_prompt", {"prompt_name": f"{SENTINEL}/{SENTINEL}", "messages": template}),
        ("list_deployments", {}),
        ("get_deployment", {"deployment": SENTINEL}),
        ("get_deployment", {"deployment": ids["deployment_id"]}),
        ("get_deployment_logs", {"deployment": ids["deployment_id"]}),
        ("get_deployment_logs", {"deployment": ids["deployment_id"], "kind": "build"}),
        ("get_deployment_logs", {"deployment": SENTINEL, "revision_id": ids["revision_id"]}),
        ("get_billing_usage", {
            "starting_on": "2026-01-01T00:00:00Z", "ending_before": "2027-01-01T00:00:00Z",
        }),
    ]  # fmt: skip


def test_another_workspace_is_never_found(connect, workspace):
    tenant = OtherTenant.make()
    outsider, owner = connect(key_for(workspace)), connect(key_for(tenant.workspace))
    found_by_owner, leaks = set(), []

    for name, arguments in calls(tenant.values):
        result = outsider.result(name, **arguments)
        text = dumps_text(result)
        # An error may repeat what the caller sent.
        for sent in (repr(SENTINEL), f"{SENTINEL}/{SENTINEL}"):
            text = text.replace(sent, "") if result["isError"] else text
        if SENTINEL in text:
            leaks.append(f"{name} {arguments}: {text[:300]}")
        changes = name in {
            "run_experiment", "update_examples", "push_prompt", "evaluate_experiment",
        }  # fmt: skip
        if not changes and SENTINEL in dumps_text(owner.result(name, **arguments)):
            found_by_owner.add(name)

    assert not leaks, "\n".join(leaks)
    assert {name for name, _ in calls(tenant.values)} == set(TOOLS) - {"create_dataset"}
    # The calls are such that their owner does find the rows; the thread has no messages.
    assert found_by_owner >= {
        "list_projects", "fetch_runs", "read_run", "fetch_trace",
        "list_datasets", "read_dataset", "list_examples", "read_example", "list_experiments",
        "list_prompts", "get_prompt_by_name", "list_deployments", "get_deployment",
        "get_deployment_logs", "list_evaluators", "get_evaluator_logs",
    }  # fmt: skip
