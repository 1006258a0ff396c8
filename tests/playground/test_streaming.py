"""One column by hand: the reply as events, and the call as a run."""

from __future__ import annotations

import asyncio

import pytest

from apps.organizations.services.workspaces import set_secrets
from apps.playground.errors import PlaygroundBusy
from apps.playground.services import streaming
from apps.trace_store import Payload, RunQuery, run_store
from apps.tracing.models import Project
from apps.usage.models import LimitType, UsageLimit
from tests.console.conftest import create_workspace_user, signed_in
from tests.factories.organizations import WorkspaceFactory
from tests.playground.conftest import events, run_column, send, setting
from tests.providers.conftest import KEY
from tests.providers.fake_provider import Reply

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("keys")]
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}


def stored_runs(workspace, *payloads):
    [project] = Project.objects.for_workspace(workspace.pk).filter(name="playground")
    query = RunQuery(project_ids=[project.pk])
    return run_store.query(workspace.pk, query, limit=10, payloads=payloads).runs


def test_anonymous_and_outsiders_get_no_stream(client, workspace, base):
    assert send(client, f"{base}/stream", {}).status_code == 302
    outsider = signed_in(create_workspace_user(WorkspaceFactory(), "editor"))
    assert send(outsider, f"{base}/stream", {}).status_code == 404


def test_viewers_call_no_models(workspace, base, provider):
    viewer = signed_in(create_workspace_user(workspace, "viewer"))

    response = send(viewer, f"{base}/stream", {"setting": setting()})

    assert response.status_code == 403
    assert provider.requests == []
    assert viewer.get(f"{base}/models").json()["may_run"] is False


def test_reply_comes_as_events_with_its_figures(page, base, provider):
    provider.answer = Reply("It is so.", thinking="Hm")

    got = run_column(page, base)

    names = [name for name, _ in got]
    assert names == ["start", "first_token", "thinking", "text", "text", "text", "end"]
    start, end = got[0][1], got[-1][1]
    assert start["messages"] == [{"role": "human", "content": "Why?"}]
    assert end["status"] == "success"
    assert end["message"] == {"role": "ai", "content": "It is so.", "thinking": "Hm"}
    assert end["usage"] == {
        "input_tokens": 100, "output_tokens": 20, "total_tokens": 120,
        "input_token_details": {"cache_read": 40}, "output_token_details": {"reasoning": 5},
    }  # fmt: skip
    # 60 tokens for 0.4, 40 cached ones for 0.1, and 20 for 1.6 dollars per million.
    assert end["cost"] == pytest.approx((60 * 0.4 + 40 * 0.1 + 20 * 1.6) / 1e6)
    assert 0 <= end["first_token_ms"] <= end["latency_ms"]
    assert end["schema_errors"] is None


def test_call_is_a_run_of_the_project_playground(page, workspace, base, provider):
    prompt = {"repo": "support", "commit": "a" * 64}

    got = run_column(
        page, base, letter="B", setting=setting(prompt=prompt, model={"temperature": 0.2})
    )

    [run] = stored_runs(workspace, Payload.INPUTS, Payload.OUTPUTS, Payload.EXTRA)
    assert str(run.row.id) == got[-1][1]["run_id"]
    assert (run.row.name, run.row.run_type, run.row.model) == ("support", "llm", "gpt-4.1-mini")
    assert run.value(Payload.INPUTS) == {"messages": [{"role": "user", "content": "Why?"}]}
    [choice] = run.value(Payload.OUTPUTS)["choices"]
    assert choice["message"] == {"role": "assistant", "content": "Hello there"}
    assert run.row.usage.total_tokens == 120
    assert float(run.row.usage.total_cost) == pytest.approx(got[-1][1]["cost"])
    assert run.row.first_token_time is not None
    metadata = run.row.metadata
    assert metadata["lc_hub_commit_hash"] == "a" * 64
    assert (metadata["ls_provider"], metadata["ls_temperature"]) == ("openai", 0.2)
    assert metadata["playground_letter"] == "B"


def test_key_is_in_no_answer_and_in_no_run(page, workspace, base, provider):
    provider.answer = Reply(status=401, error=f"Incorrect API key: {KEY}")

    response = send(page, f"{base}/stream", {"setting": setting(), "variables": {"question": "?"}})
    got = events(response)

    catalogue = page.get(f"{base}/models")
    assert catalogue.json()["providers"][0]["has_key"] is True
    [run] = stored_runs(workspace, *Payload)
    stored = "".join(str(run.value(payload)) for payload in Payload) + str(run.row)
    assert KEY not in str(got) + catalogue.content.decode() + stored


def test_failure_of_the_provider_is_an_event_and_the_error_of_the_run(
    page, workspace, base, provider
):
    provider.answer = Reply(status=429, error="Slow down.", headers={"retry-after": "12"})

    got = run_column(page, base)

    assert [name for name, _ in got] == ["start", "error", "end"]
    assert got[1][1] == {
        "code": "provider_rate_limited",
        "detail": "OpenAI responded with status 429: Slow down.",
        "provider": "openai",
        "status": 429,
        "retry_after": 12.0,
    }
    assert (got[2][1]["status"], got[2][1]["message"]) == ("error", None)
    [run] = stored_runs(workspace, Payload.ERROR)
    assert run.value(Payload.ERROR) == "OpenAI responded with status 429: Slow down."


def test_cut_reply_keeps_what_came(page, workspace, base, provider):
    provider.answer = Reply("One two three four five six", is_cut=True)

    end = run_column(page, base)[-1][1]

    assert end["status"] == "error"
    assert end["message"]["content"].startswith("One two")


def test_tool_calls_continue_with_results(page, base, provider):
    tools = [{"name": "search", "description": "Finds", "schema": SCHEMA, "result": "30 °C"}]
    provider.answer = Reply("", tool_calls=[("search", {"city": "Rome"})])

    end = run_column(page, base, setting=setting(tools=tools))[-1][1]

    [call] = end["message"]["tool_calls"]
    assert (call["name"], call["arguments"]) == ("search", {"city": "Rome"})
    result = {"role": "tool", "tool_call_id": call["id"], "name": "search", "content": "30 °C"}
    provider.answer = Reply("Warm.")
    run_column(page, base, setting=setting(tools=tools), history=[end["message"], result])
    sent = provider.bodies[1]["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool"]
    assert sent[2]["content"] == "30 °C"
    assert "result" not in str(provider.bodies[1]["tools"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"city": "Rome"}', []),
        ('{"city": 5}', [("$.city", "type")]),
        ("{}", [("$", "required")]),
        ("Rome", [("$", "json")]),
    ],
)
def test_reply_is_checked_against_the_response_schema(page, base, provider, text, expected):
    provider.answer = Reply(text)

    end = run_column(page, base, setting=setting(response_schema=SCHEMA))[-1][1]

    assert [(error["path"], error["rule"]) for error in end["schema_errors"]] == expected


def test_reader_that_leaves_cancels_the_call(page, workspace, base, provider):
    provider.answer = Reply("word " * 500, seconds_per_word=0.02)
    body = {"setting": setting(), "variables": {"question": "?"}}
    response = send(page, f"{base}/stream", body)

    async def leave() -> None:
        async for piece in response.stream:
            if b"event: text" in piece:
                break
        await response.stream.aclose()

    asyncio.run(leave())

    assert provider.aborted.wait(10)
    [run] = stored_runs(workspace, Payload.ERROR, Payload.OUTPUTS)
    assert run.value(Payload.ERROR) == "Cancelled: the reader left."
    assert run.value(Payload.OUTPUTS)["choices"][0]["message"]["content"].startswith("word")


def test_silent_provider_is_bridged_by_comments(page, base, provider, monkeypatch):
    monkeypatch.setattr(streaming, "PING_SECONDS", 0.05)
    provider.answer = Reply("One two", seconds_per_word=0.3)
    body = {"setting": setting(), "variables": {"question": "?"}}
    response = send(page, f"{base}/stream", body)

    async def collect() -> list[bytes]:
        return [piece async for piece in response.stream]

    assert b": ping\n\n" in asyncio.run(collect())


def test_organization_has_a_limit_of_open_calls(page, workspace, base, provider, monkeypatch):
    monkeypatch.setattr(streaming, "MAX_OPEN_CALLS", 1)
    body = {"setting": setting(), "variables": {"question": "?"}}
    response = send(page, f"{base}/stream", body)

    with (
        streaming.call_slots.hold(workspace.organization_id),
        pytest.raises(PlaygroundBusy) as raised,
    ):
        events(response)

    assert raised.value.headers == {"Retry-After": "2"}
    assert provider.requests == []
    assert run_column(page, base)[-1][1]["status"] == "success"


def test_workspace_over_its_usage_limit_calls_no_models(page, workspace, base, provider):
    UsageLimit.objects.create(
        organization=workspace.organization,
        workspace=workspace,
        limit_type=LimitType.MONTHLY_TRACES,
        limit_value=0,
    )

    response = send(page, f"{base}/stream", {"setting": setting(), "variables": {"question": "?"}})

    assert (response.status_code, response.json()["code"]) == (429, "usage_limit_exceeded")
    assert provider.requests == []


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"setting": setting(), "variables": {}}, "missing_variables"),
        ({"setting": setting({"role": "human", "content": "{a"})}, "bad_playground_setting"),
        ({"setting": setting({"role": "robot", "content": "a"})}, "bad_playground_setting"),
        (
            {"setting": setting({"role": "human", "content": "a"}, extra=1)},
            "bad_playground_setting",
        ),
        ({"setting": setting({"role": "human", "content": "a"}, messages=[])}, "bad_chat_request"),
        (
            {"setting": setting({"role": "human", "content": "a"}, model={"top_p": 2})},
            "bad_chat_request",
        ),
        (
            {"setting": setting({"role": "human", "content": "a"}, model={"provider": "x"})},
            "unknown_provider",
        ),
        (
            {"setting": setting({"role": "human", "content": "a"}, response_schema={"type": 5})},
            "dataset_schema_refused",
        ),
        ({"setting": setting({"role": "tool", "content": "a"})}, "bad_chat_request"),
        ({}, "bad_playground_setting"),
        ([], "bad_playground_setting"),
    ],
)
def test_bad_request_is_422(page, base, provider, body, code):
    response = send(page, f"{base}/stream", body)

    assert (response.status_code, response.json()["code"]) == (422, code)
    assert provider.requests == []


def test_missing_key_is_named(page, workspace, base):
    set_secrets(workspace_id=workspace.pk, values={"OPENAI_API_KEY": None})
    response = send(page, f"{base}/stream", {"setting": setting(), "variables": {"question": "?"}})

    assert response.status_code == 409
    assert response.json()["errors"] == [{"provider": "openai", "secret": "OPENAI_API_KEY"}]


def test_missing_variables_are_named(page, base):
    text = {"role": "system", "content": "Be {tone}."}
    place = {"role": "placeholder", "content": "history"}

    response = send(page, f"{base}/stream", {"setting": setting(text, place), "variables": {}})

    assert response.json()["errors"] == [{"field": "tone"}, {"field": "history"}]


def test_catalogue_has_prices_and_newest_models_first(page, base):
    openai = page.get(f"{base}/models").json()["providers"][0]

    models = {model["id"]: model for model in openai["models"]}
    assert models["gpt-4.1-mini"] == {
        "id": "gpt-4.1-mini", "input_price": 0.4, "output_price": 1.6,
    }  # fmt: skip
    names = list(models)
    assert names.index("gpt-4.1") < names.index("gpt-4o")
    assert not any("audio" in name or "realtime" in name for name in names)
