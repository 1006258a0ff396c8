"""The playground's API: saved settings, prompts, queries in words, experiments."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from apps.core import errors as core_errors
from apps.experiment_jobs.models import ExperimentJob
from apps.organizations.services.workspaces import set_secrets
from apps.playground.api import views
from apps.playground.manifests import build_manifest
from apps.playground.models import SavedSettings
from apps.playground.services import saved_settings
from apps.playground.setting import Setting, convert
from apps.rate_limits.row_matching import counted_path, is_counted
from tests.factories.datasets import make_dataset
from tests.factories.organizations import WorkspaceFactory
from tests.playground.conftest import events, read, send, setting
from tests.playground.test_experiments import finish
from tests.playground.test_streaming import stored_runs
from tests.providers.fake_provider import Reply

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("keys")]
SAVED = {"name": "Brief", "settings": {"lc": 1, "kwargs": {"model": "m"}}, "options": {"n": 5}}


def manifest(**fields):
    return build_manifest(convert(setting(**fields), Setting))


# Saved settings


def test_saved_settings_are_created_changed_and_deleted(api):
    created = api.post("/playground-settings", SAVED).json()

    assert {name: created[name] for name in SAVED} == SAVED
    path = f"/playground-settings/{created['id']}"
    changed = api.patch(path, {"description": "Short"}).json()
    assert (changed["description"], changed["settings"]) == ("Short", SAVED["settings"])
    assert [row["id"] for row in api.get("/playground-settings").json()] == [created["id"]]
    assert api.get(path).json() == changed
    assert api.delete(path).status_code == 204
    assert api.get(path).status_code == 404


def test_saved_settings_are_unknown_elsewhere_and_to_keys_without_the_permission(
    api, make_api, workspace
):
    created = api.post("/playground-settings", SAVED).json()
    path = f"/playground-settings/{created['id']}"
    elsewhere, reader = make_api(WorkspaceFactory()), make_api(workspace, "read")

    assert elsewhere.get(path).status_code == 404
    assert elsewhere.delete(path).status_code == 404
    assert elsewhere.get("/playground-settings").json() == []
    assert reader.get(path).status_code == 200
    assert reader.patch(path, {"name": "x"}).status_code == 403
    assert reader.delete(path).status_code == 403
    assert SavedSettings.unscoped.get().name == "Brief"


@pytest.mark.parametrize(
    "body",
    [{}, {"settings": 5}, {"settings": {}, "name": "x" * 300}, {"settings": {}, "more": 1}],
)
def test_bad_saved_settings_are_refused(api, body):
    assert api.post("/playground-settings", body).status_code == 422
    assert not SavedSettings.unscoped.exists()


def test_workspace_has_a_limit_of_saved_settings(api, monkeypatch):
    monkeypatch.setattr(saved_settings, "MAX_SAVED", 1)
    api.post("/playground-settings", SAVED)

    assert api.post("/playground-settings", SAVED).status_code == 409


# Prompts


def test_prompt_is_invoked_with_a_model_of_the_workspace(api, workspace, provider):
    provider.answer = Reply("It is so.")
    body = {
        "messages": [["system", "Be {tone}."], ["user", "{question}"]],
        "inputs": {"tone": "brief", "question": "Why?"},
    }

    response = json.loads(read(api.post("/prompts/invoke_prompt", body)))

    assert response["content"] == "It is so."
    assert response["usage"]["total_tokens"] == 120
    [request] = provider.bodies
    assert request["model"] == "gpt-4.1-mini"
    assert [message["content"] for message in request["messages"]] == ["Be brief.", "Why?"]
    [run] = stored_runs(workspace)
    assert (str(run.row.id), run.row.usage.total_tokens) == (response["run_id"], 120)


def test_failure_of_the_provider_is_the_response(api, workspace, provider):
    provider.answer = Reply(status=429, error="Slow down.", headers={"retry-after": "3"})
    response = api.post("/prompts/invoke_prompt", {"messages": [["human", "Why?"]]})

    async def respond() -> None:
        async for _ in response.stream:
            pass

    with pytest.raises(views.core_errors.AppError) as raised:
        asyncio.run(respond())

    assert (raised.value.status, raised.value.headers) == (429, {"Retry-After": "3"})
    assert stored_runs(workspace)[0].row.error_preview.endswith("Slow down.")


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [["robot", "x"]]},
        {"messages": []},
        {"messages": [["human", "{x}"]]},
        {"messages": "x"},
        {"messages": [["human", "x"]], "secrets": {}},
    ],
)
def test_bad_invocation_is_refused(api, provider, body):
    assert api.post("/prompts/invoke_prompt", body).status_code == 422
    assert provider.requests == []


def test_canvas_returns_the_edited_text(api, provider):
    provider.answer = Reply("You are kind, {name}.")
    body = {
        "artifact": "You are strict, {name}.",
        "highlighted": "strict",
        "messages": [["user", "Make it kind."]],
    }

    response = json.loads(read(api.post("/prompts/canvas", body)))

    assert response["artifact"] == "You are kind, {name}."
    sent = "".join(message["content"] for message in provider.bodies[0]["messages"])
    assert "You are strict, {name}." in sent
    assert "Make it kind." in sent
    body["highlighted"] = "absent"
    assert api.post("/prompts/canvas", body).status_code == 422


# Queries in words


@pytest.mark.parametrize("path", ["/runs/generate-query", "/generate"])
def test_query_is_written_and_checked(api, provider, path):
    provider.answer = Reply("```\nstatus:error latency:>2s\n```")

    response = json.loads(read(api.post(path, {"query": "slow failures"})))

    assert response == {
        "query": "status:error latency:>2s",
        "filter": 'and(eq(status, "error"), gt(latency, 2))',
    }
    assert "slow failures" in provider.bodies[0]["messages"][-1]["content"]


def test_invalid_query_is_sent_back_once(api, provider):
    answers = iter([Reply("latancy:>2s"), Reply("latency:>2s")])
    provider.answer = lambda _: next(answers)

    response = json.loads(read(api.post("/generate", {"query": "slow"})))

    assert response["query"] == "latency:>2s"
    assert "Unknown field" in provider.bodies[1]["messages"][-1]["content"]


def test_model_that_writes_no_query_is_an_error(api, provider):
    provider.answer = Reply("latancy:>2s")

    with pytest.raises(views.core_errors.AppError) as raised:
        read(api.post("/generate", {"query": "slow"}))

    assert raised.value.code == "query_not_written"
    assert len(provider.requests) == 2


def test_query_needs_a_key(api, workspace, provider):
    names = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY")
    set_secrets(workspace_id=workspace.pk, values=dict.fromkeys(names))

    response = api.post("/generate", {"query": "slow"})

    assert (response.status_code, response.json()["code"]) == (409, "no_provider_key")


def test_calls_of_models_are_rate_limited():
    for path in ("/prompts/invoke_prompt", "/api/v1/prompts/canvas", "/generate"):
        assert is_counted(counted_path(path))
    assert not is_counted(counted_path("/prompts/support/abc"))


# Experiments


def test_manifest_runs_over_a_dataset(api, workspace, provider):
    provider.answer = Reply("Fine")
    dataset = make_dataset(workspace, {"question": "One"}, {"question": "Two"})
    body = {"dataset_id": str(dataset.pk), "manifest": manifest(), "project_name": "nightly"}

    job = api.post("/datasets/playground_experiment/batch", body).json()
    finish(workspace)

    assert (job["experiment_name"], job["total"], job["runner"]) == ("nightly", 2, "model")
    ended = api.get(f"/experiment-jobs/{job['id']}").json()
    assert (ended["status"], ended["done"]) == ("completed", 2)
    assert len(provider.requests) == 2


def test_commit_runs_over_a_dataset_and_streams_its_results(api, page, base, workspace):
    send(page, f"{base}/commits", {"repo": "support", "setting": setting(), "create": True})
    dataset = make_dataset(workspace, {"question": "One"}, {"other": "Two"})
    body = {"dataset_id": str(dataset.pk), "repo_handle": "support"}
    response = api.post("/datasets/playground_experiment/stream", body)
    assert response.status_code == 200
    finish(workspace)

    got = events(response)

    assert [name for name, _ in got] == ["start", "result", "result", "end"]
    results = sorted((data for name, data in got if name == "result"), key=lambda r: r["status"])
    assert [result["status"] for result in results] == ["failed", "succeeded"]
    assert results[1]["message"]["content"] == "Hello there"
    assert (got[-1][1]["done"], got[-1][1]["failed"]) == (1, 1)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"manifest": {"lc": 1}},
        {"manifest": manifest(), "repo_handle": "x"},
        {"manifest": manifest(), "commit": "x"},
        {"manifest": manifest(), "secrets": {"OPENAI_API_KEY": "sk"}},
        {"manifest": manifest()["kwargs"]["first"]},
        {"manifest": manifest(), "batch_size": 0},
    ],
)
def test_bad_experiment_is_refused(api, workspace, fields):
    dataset = make_dataset(workspace, {"question": "One"})

    response = api.post(
        "/datasets/playground_experiment/batch", {"dataset_id": str(dataset.pk), **fields}
    )

    assert response.status_code in {400, 422}
    assert not ExperimentJob.unscoped.exists()


def test_keys_that_may_not_call_models_start_no_experiment(make_api, workspace):
    dataset = make_dataset(workspace, {"question": "One"})
    body = {"dataset_id": str(dataset.pk), "manifest": manifest()}

    response = make_api(workspace, "read").post("/datasets/playground_experiment/batch", body)

    assert response.status_code == 403


def test_agent_of_another_workspace_runs_no_experiment(api, workspace):
    dataset = make_dataset(workspace, {"question": "One"})
    body = {"dataset_id": str(dataset.pk), "deployment_id": str(dataset.pk)}

    assert api.post("/datasets/studio_experiment", body).status_code == 404


def test_stream_of_results_ends_with_the_access_of_its_reader(
    api, page, base, workspace, monkeypatch
):
    commit_body = {"repo": "asker", "setting": setting(), "create": True}
    send(page, f"{base}/commits", commit_body)
    dataset = make_dataset(workspace, {"question": "Why?"})
    body = {"dataset_id": str(dataset.pk), "repo_handle": "asker"}
    response = api.post("/datasets/playground_experiment/stream", body)

    @contextlib.contextmanager
    def reject(_: Any, on_rejected: Any) -> Iterator[None]:
        on_rejected(core_errors.Unauthenticated())
        yield

    monkeypatch.setattr(views, "revalidating", reject)

    assert [name for name, _ in events(response)] == ["start", "error"]


def test_results_that_ended_out_of_order_are_sent_once():
    sent = views._SentResults()

    sent.add([1, 3])
    sent.add([0, 2])
    sent.add([5])

    assert (sent.first, sent.others) == (4, {5})
