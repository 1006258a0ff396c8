"""An experiment on the sample agent of the running platform, as a client starts and reads it."""

from __future__ import annotations

import uuid

import httpx
import pytest

from tests.installation import wait_until
from tests.live_client import client

__all__ = ["client"]

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
    pytest.mark.xdist_group("evaluation"),
]


@pytest.fixture
def deployment_id(live, sample_agent):
    answer = httpx.get(f"{live.url}/v2/deployments", headers=live.headers).json()
    (row,) = [row for row in answer["resources"] if row["name"] == "sample-agent"]
    return row["id"]


def test_experiment_runs_the_agent_and_traces_it_below_its_root_runs(live, client, deployment_id):
    dataset = client.create_dataset(f"sums {uuid.uuid4()}")
    client.create_examples(
        dataset_id=dataset.id,
        examples=[{"inputs": {"sum": f"{n} + 1"}, "outputs": {"n": n + 1}} for n in range(3)],
    )
    with httpx.Client(base_url=live.api_url, headers=live.headers, timeout=60) as http:
        response = http.post(
            f"/datasets/{dataset.id}/experiment-jobs",
            json={
                "deployment_id": deployment_id,
                "assistant_id": "agent",
                "repetitions": 2,
                "input_mapping": {
                    "messages": [{"role": "user", "content": "What is {{sum}}?"}],
                },
            },
        )
        assert response.status_code == 201, response.text
        job = response.json()
        rows = []

        def has_ended() -> bool:
            rows[:] = [http.get(f"/experiment-jobs/{job['id']}").json()]
            return rows[0]["ended_at"] is not None

        wait_until(has_ended, f"the end of the experiment: {rows}", seconds=300)
    assert (rows[0]["status"], rows[0]["done"], rows[0]["failed"]) == ("completed", 6, 0)

    def is_traced() -> bool:
        runs = list(client.list_runs(project_id=job["experiment_id"]))
        parents = {run.parent_run_id for run in runs}
        return all(run.id in parents for run in runs if run.parent_run_id is None) and all(
            run.end_time is not None for run in runs
        )

    wait_until(is_traced, "the traces of the agent")
    roots = list(client.list_runs(project_id=job["experiment_id"], is_root=True))
    assert len(roots) == 6
    assert {root.inputs["sum"] for root in roots} == {"0 + 1", "1 + 1", "2 + 1"}
    for root in roots:
        assert root.error is None
        question, *_ = root.outputs["messages"]
        assert question["content"] == f"What is {root.inputs['sum']}?"
        children = list(client.list_runs(project_id=job["experiment_id"], trace_id=root.trace_id))
        (top,) = [run for run in children if run.parent_run_id == root.id]
        assert top.reference_example_id is None
        assert top.inputs["messages"]
    project = client.read_project(project_id=job["experiment_id"], include_stats=True)
    assert project.end_time is not None
    results = client.get_experiment_results(project_id=project.id)
    assert len(list(results["examples_with_runs"])) == 3
    assert not list(client.list_runs(project_name="sample-agent", trace_id=roots[0].id))
