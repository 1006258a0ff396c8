"""The playground opens from runs, prompts and examples, and saves columns as commits."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from langchain_core.load import load

from apps.core.ids import uuid7
from apps.datasets.models import ExampleRevision
from apps.deployments.statuses import DeploymentStatus
from apps.playground.manifests import build_manifest, read_manifest
from apps.playground.setting import Setting, convert
from apps.prompts.models import Commit
from apps.trace_store.dotted_order import format_segment
from tests.console.conftest import create_workspace_user, signed_in
from tests.factories.datasets import make_dataset
from tests.factories.deployments import DeploymentFactory, RevisionFactory
from tests.factories.organizations import WorkspaceFactory
from tests.playground.conftest import run_column, send, setting
from tests.providers.fake_provider import Reply

pytestmark = pytest.mark.django_db
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL = {"name": "search", "description": "Finds", "schema": SCHEMA}
CALL = {"id": "c1", "name": "search", "arguments": {"a": 1}}
RICH = setting(
    {"role": "system", "content": "Be {tone}."},
    {
        "role": "human",
        "content": [
            {"type": "text", "text": "What is {this}?"},
            {"type": "image", "mime_type": "image/png", "data": "aGk="},
            {"type": "image", "url": "https://pictures.example/1.png"},
            {"type": "file", "mime_type": "application/pdf", "filename": "a.pdf", "data": "cGRm"},
        ],
    },
    {"role": "ai", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "name": "search", "content": "found"},
    {"role": "placeholder", "content": "history"},
    {"role": "human", "content": "{question}"},
    model={"temperature": 0.2, "max_tokens": 50, "stop": ["END"], "tool_choice": "auto"},
    tools=[TOOL],
    response_schema=SCHEMA,
    template_format="f-string",
)


def ingest_run(api, inputs, outputs, **fields):
    run_id, start = uuid7(), datetime.now(UTC)
    extra = {"metadata": fields.pop("metadata", {}), "invocation_params": fields.pop("params", {})}
    body = {
        "id": str(run_id), "trace_id": str(run_id), "name": "model", "run_type": "llm",
        "dotted_order": format_segment(start, run_id), "start_time": start.isoformat(),
        "end_time": start.isoformat(), "inputs": inputs, "outputs": outputs, "extra": extra,
        "session_name": "default", **fields,
    }  # fmt: skip
    assert api.post("/runs", body).status_code == 202
    return run_id


def test_run_of_the_playground_opens_as_it_was(page, base, keys, provider):
    provider.answer = Reply("Warm.", thinking="Hm")
    fields = {"messages": RICH["messages"][:4], "model": RICH["model"], "tools": [TOOL]}
    variables = {"tone": "brief", "this": "it"}
    end = run_column(page, base, setting=fields, variables=variables)[-1][1]

    filled = page.get(f"{base}/prefill?run={end['run_id']}").json()

    [column] = filled["columns"]
    opened = column["setting"]
    assert [message["role"] for message in opened["messages"]] == ["system", "human", "ai", "tool"]
    assert opened["messages"][0]["content"] == "Be brief."
    blocks = opened["messages"][1]["content"]
    assert [block["type"] for block in blocks] == ["text", "image", "image", "file"]
    assert blocks[1]["data"] == "aGk="
    assert opened["messages"][2]["tool_calls"] == RICH["messages"][2]["tool_calls"]
    assert opened["messages"][3]["content"] == "found"
    assert opened["tools"] == [TOOL]
    assert opened["model"] == RICH["model"]
    assert opened["template_format"] == "none"
    [recorded] = filled["recorded"]
    assert recorded["message"]["content"] == "Warm."
    assert recorded["message"]["thinking"] == "Hm"
    assert (recorded["usage"]["total_tokens"], recorded["cost"]) == (120, end["cost"])


def langchain_message(name, content):
    path = ["langchain", "schema", "messages", name]
    return {"lc": 1, "type": "constructor", "id": path, "kwargs": {"content": content}}


HAIKU = "claude-haiku-4-5"
NAMED = {"ls_provider": "anthropic", "ls_model_name": HAIKU}
RECORDED = {
    "langchain": (
        {
            "messages": [
                [
                    langchain_message("SystemMessage", "Be brief."),
                    langchain_message("HumanMessage", "Why?"),
                ]
            ]
        },
        {**NAMED, "ls_temperature": 0.1},
        {},
    ),
    "anthropic": (
        {
            "system": "Be brief.",
            "messages": [{"role": "user", "content": [{"type": "text", "text": "Why?"}]}],
        },
        {},
        {"model": HAIKU, "temperature": 0.1},
    ),
    "gemini": (
        {
            "systemInstruction": {"parts": [{"text": "Be brief."}]},
            "contents": [{"role": "user", "parts": [{"text": "Why?"}]}],
        },
        NAMED,
        {"temperature": 0.1},
    ),
}


@pytest.mark.parametrize("name", RECORDED)
def test_run_of_any_format_opens_with_messages_and_model(page, base, api, name):
    inputs, metadata, params = RECORDED[name]
    outputs = {"role": "assistant", "content": "So."}
    run_id = ingest_run(api, inputs, outputs, metadata=metadata, params=params)

    filled = page.get(f"{base}/prefill?run={run_id}").json()

    opened = filled["columns"][0]["setting"]
    assert [(m["role"], m["content"]) for m in opened["messages"]] == [
        ("system", "Be brief."),
        ("human", "Why?"),
    ]
    assert opened["model"] == {"provider": "anthropic", "model": HAIKU, "temperature": 0.1}
    assert filled["recorded"][0]["message"] == {"role": "ai", "content": "So."}


def test_run_without_messages_does_not_open(page, base, api):
    run_id = ingest_run(api, {"a": 1}, {"b": 2})

    response = page.get(f"{base}/prefill?run={run_id}", headers={"accept": "*/*"})

    assert (response.status_code, response.json()["code"]) == (422, "cannot_prefill")


@pytest.mark.parametrize("query", ["run=x", f"run={uuid7()}", "prompt=none", f"example={uuid7()}"])
def test_unknown_source_is_404(page, base, query):
    assert page.get(f"{base}/prefill?{query}").status_code == 404


def test_example_opens_with_its_inputs_as_variables(page, workspace, base):
    dataset = make_dataset(workspace, {"question": "Why?", "tone": "brief"})
    example = ExampleRevision.objects.for_workspace(workspace.pk).get()

    filled = page.get(f"{base}/prefill?example={example.example_id}").json()

    assert filled["variables"] == {"question": "Why?", "tone": "brief"}
    assert filled["dataset"]["dataset_id"] == str(dataset.pk)
    content = filled["columns"][0]["setting"]["messages"][0]["content"]
    assert {"{question}", "{tone}"} <= set(content.split())


def test_setting_survives_a_commit(page, base):
    saved = send(
        page,
        f"{base}/commits",
        {"repo": "support", "setting": RICH, "create": True, "tags": ["live"]},
    )

    assert saved.status_code == 201, saved.content
    commit = saved.json()["commit_hash"]
    filled = page.get(f"{base}/prefill?prompt=support&commit=live").json()
    opened = filled["columns"][0]["setting"]
    assert opened.pop("prompt") == {"repo": "support", "commit": commit}
    assert opened.pop("name") == "support"
    assert convert(opened, Setting) == convert(RICH, Setting)
    assert filled["notices"] == []


@pytest.mark.filterwarnings("ignore:The function `load` is in beta")
def test_commit_is_a_prompt_for_langchain(page, base):
    plain = setting(
        {"role": "system", "content": "Be {tone}."}, {"role": "human", "content": "{question}"}
    )
    send(page, f"{base}/commits", {"repo": "support", "setting": plain, "create": True})
    manifest = Commit.unscoped.get().manifest

    prompt = load(manifest["kwargs"]["first"], allowed_objects="core")

    messages = prompt.invoke({"tone": "brief", "question": "Why?"}).to_messages()
    assert [message.content for message in messages] == ["Be brief.", "Why?"]


def test_setting_without_a_format_is_committed_as_texts():
    fixed = convert(
        setting({"role": "human", "content": "{not a variable}"}, template_format="none"), Setting
    )

    setting_read, _ = read_manifest(build_manifest(fixed))

    assert setting_read.messages == fixed.messages
    assert setting_read.template_format == "none"


def test_commit_on_a_moved_head_is_a_conflict(page, base):
    first = send(
        page, f"{base}/commits", {"repo": "support", "setting": RICH, "create": True}
    ).json()
    changed = json.loads(json.dumps(RICH))
    changed["messages"][0]["content"] = "Be kind."
    body = {"repo": "support", "setting": changed, "parent": first["commit_hash"]}

    assert send(page, f"{base}/commits", body).status_code == 201
    stale = send(page, f"{base}/commits", body)
    assert (stale.status_code, stale.json()["code"]) == (409, "stale_parent")
    assert Commit.unscoped.count() == 2


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"repo": "none", "setting": RICH}, 404),
        ({"repo": "Bad Name", "setting": RICH, "create": True}, 422),
        ({"repo": "support", "setting": RICH, "create": True, "tags": ["la/test"]}, 422),
        ({"repo": "support"}, 422),
    ],
)
def test_bad_commit_is_refused_whole(page, base, body, status):
    assert send(page, f"{base}/commits", body).status_code == status
    assert not Commit.unscoped.exists()


def test_viewers_commit_nothing(workspace, base):
    viewer = signed_in(create_workspace_user(workspace, "viewer"))
    body = {"repo": "support", "setting": RICH, "create": True}

    assert send(viewer, f"{base}/commits", body).status_code == 403


# Deployed agents


def deploy(workspace, name, **fields):
    deployment = DeploymentFactory(workspace=workspace, name=name, **fields)
    deployment.active_revision = RevisionFactory(deployment=deployment)
    deployment.save()
    return deployment


def test_agent_opens_as_a_column_that_calls_it(page, base, workspace):
    deployment = deploy(workspace, "support")

    state = page.get(f"{base}/prefill?agent={deployment.slug}").json()

    [column] = state["columns"]
    assert column["setting"]["agent"] == {"slug": deployment.slug}
    assert column["setting"]["name"] == "support"
    response = page.get(f"{base}?agent={deployment.slug}")
    assert '<option value="agent support" selected>support</option>' in response.content.decode()


def test_only_running_agents_are_offered(page, base, workspace):
    deploy(workspace, "running")
    deploy(workspace, "stopped", status=DeploymentStatus.STOPPED)
    deploy(WorkspaceFactory(), "foreign")
    DeploymentFactory(workspace=workspace, name="building")
    runner = signed_in(create_workspace_user(workspace, "viewer"))

    content = page.get(base).content.decode()

    assert 'value="agent running"' in content
    for name in ("stopped", "foreign", "building"):
        assert f'value="agent {name}"' not in content
    # A reader of prompts runs no agents.
    assert 'value="agent running"' not in runner.get(base).content.decode()


def test_agent_of_another_workspace_is_not_found(page, base):
    deployment = DeploymentFactory()

    assert page.get(f"{base}/prefill?agent={deployment.slug}").status_code == 404
    assert page.get(f"{base}?agent={deployment.slug}").status_code == 404


def test_column_of_an_agent_calls_no_model_and_is_no_prompt(page, base, workspace):
    column = setting(agent={"slug": "support"})
    dataset = make_dataset(workspace, {"question": "Why?"})
    bodies = {
        "stream": {"setting": column, "variables": {"question": "Why?"}},
        "commits": {"repo": "support", "setting": column, "create": True},
        "experiments": {
            "dataset_id": str(dataset.pk),
            "columns": [{"letter": "A", "setting": column}],
        },
    }

    for route, body in bodies.items():
        response = send(page, f"{base}/{route}", body)
        assert (response.status_code, response.json()["code"]) == (422, "bad_playground_setting")


def test_messages_are_filled_in_for_an_agent(page, base):
    column = setting(
        {"role": "system", "content": "Be {tone}."},
        {"role": "placeholder", "content": "history"},
        {"role": "human", "content": "{question}"},
        agent={"slug": "support"},
    )
    history = [{"role": "ai", "content": "Hello"}]
    variables = {"tone": "brief", "history": history, "question": "Why?"}

    response = send(page, f"{base}/messages", {"setting": column, "variables": variables})

    assert response.json()["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "Why?"},
    ]
    missing = send(page, f"{base}/messages", {"setting": column, "variables": {}})
    assert (missing.status_code, missing.json()["code"]) == (422, "missing_variables")
