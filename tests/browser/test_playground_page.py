"""The playground in Chromium: keys, streams, failures, drafts, commits, narrow screens."""

from __future__ import annotations

import json
import re
import sys
from contextlib import redirect_stdout
from io import StringIO
from types import SimpleNamespace
from unittest import mock

import pytest
from playwright.sync_api import expect

from apps.experiment_jobs.services import execution
from apps.organizations.services.workspaces import set_secrets
from apps.playground.call_worker import CallWorker
from apps.playground.manifests import build_manifest
from apps.playground.models import Draft
from apps.playground.setting import Setting, convert
from apps.prompts.models import Repository
from apps.prompts.services.commits import create_prompt_commit
from apps.tracing.models import Project
from tests.browser.test_accessibility import VARIANTS, axe_violations, find_problems
from tests.factories.datasets import make_dataset
from tests.factories.deployments import DeploymentFactory, RevisionFactory
from tests.factories.prompts import create_commit, create_prompt
from tests.factories.tracing import ingest, read_run, wire_run
from tests.installation import wait_until
from tests.providers.conftest import KEY, provider
from tests.providers.fake_provider import Reply

__all__ = ["provider"]
pytestmark = pytest.mark.usefixtures("keys")
COLUMN = "prompt-column"
QUESTION = "How long does a refund take?"
SEARCH = {
    "name": "search",
    "description": "Finds documents",
    "schema": {"type": "object", "properties": {"q": {"type": "string"}}},
    "result": "Refunds take five days.",
}


@pytest.fixture
def keys(session, provider):
    """Store a key of OpenAI alone, for the address of the fake."""
    values = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": provider.url}
    set_secrets(workspace_id=session.workspace.pk, values=values)


def ingest_model_run(workspace):
    run = wire_run(
        None,
        name="ChatOpenAI",
        run_type="llm",
        inputs={
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": QUESTION},
            ]
        },
        outputs={
            "choices": [{"message": {"role": "assistant", "content": "It takes a week."}}],
            "usage": {"prompt_tokens": 40, "completion_tokens": 5, "total_tokens": 45},
        },
        extra={
            "metadata": {"ls_provider": "openai", "ls_model_name": "gpt-4.1-mini"},
            "invocation_params": {"model": "gpt-4.1-mini", "temperature": 0.2},
        },
    )
    ingest(workspace, run)
    return run["id"]


def setting(*messages, **fields):
    model = {"provider": "openai", "model": "gpt-4.1-mini", **fields.pop("model", {})}
    return {
        "messages": [{"role": "human", "content": text} for text in messages or ["{question}"]],
        "model": model,
        **fields,
    }


def save_draft(session, *settings, **fields):
    columns = [
        {"letter": letter, "setting": item}
        for letter, item in zip("ABCDEFGHIJ", settings, strict=False)
    ]
    state = {"columns": columns, "variables": {"question": QUESTION}, **fields}
    Draft(workspace=session.workspace, user=session.user, state=state).save()


def open_playground(session, query=""):
    return session.goto(f"{session.path}/playground{query}")


def column(page, letter):
    return page.get_by_role("group", name=f"Column {letter}")


def reply_in(page, letter):
    return column(page, letter).locator(".play-reply").last


def playground_paths(session):
    base = f"{session.path}/playground"
    yield base
    yield f"{base}?run={ingest_model_run(session.workspace)}"
    create_commit(create_prompt(session.workspace, "support"), "Answer {question} as {tone}.")
    yield f"{base}?prompt=support"
    make_dataset(session.workspace, {"question": QUESTION}, name="support-golden")
    save_draft(
        session,
        setting(tools=[SEARCH], response_schema={"type": "object"}),
        setting("{question} {tone}"),
        setting(model={"provider": "anthropic", "model": "claude-sonnet-4-5"}),
    )
    yield base


@VARIANTS
def test_playground_passes_axe_and_fits_the_viewport(session, keys, variants):
    assert find_problems(session.page, playground_paths(session), variants) == {}


# The browser's protocol may have no body of a response that the page read as a stream.
KEEP_STREAMS = """() => {
    const send = window.fetch;
    window.streams = [];
    window.fetch = async (...request) => {
        const response = await send(...request);
        if (response.url.endsWith("/playground/stream"))
            window.streams.push(response.clone().text());
        return response;
    };
}"""


def test_model_run_opens_by_key_and_its_reply_streams_without_the_key(session, provider):
    provider.answer = Reply(text="A refund takes five days.", thinking="The policy says so.")
    run_id = ingest_model_run(session.workspace)
    project_id = read_run(session.workspace, run_id).row.project_id
    page, traffic = session.page, []
    page.on("request", lambda request: traffic.append(f"{request.headers}{request.post_data}"))
    page.on("response", lambda response: traffic.append(str(response.headers)))
    session.goto(f"{session.path}/projects/p/{project_id}/r/{run_id}?view=tree")

    page.keyboard.press("p")
    page.wait_for_url("**/playground?run=*")
    session.wait_for_elements()
    page.evaluate(KEEP_STREAMS)

    expect(page.get_by_label("Text of the message").nth(0)).to_have_value("Be brief.")
    expect(reply_in(page, "A")).to_contain_text("It takes a week.")
    page.keyboard.press("Control+Enter")
    expect(reply_in(page, "A")).to_have_attribute("data-status", "success")
    expect(reply_in(page, "A")).to_contain_text("A refund takes five days.")
    expect(reply_in(page, "A").locator(".play-figures")).to_contain_text("100 → 20")
    expect(page.get_by_role("tab")).to_have_text(["Recorded", "Run 1"])
    [body] = provider.bodies
    assert body["temperature"] == 0.2
    assert [message["content"] for message in body["messages"]] == ["Be brief.", QUESTION]
    assert provider.requests[0].headers["authorization"] == f"Bearer {KEY}"
    [stream] = page.evaluate("Promise.all(window.streams)")
    assert "event: end" in stream
    traffic += [page.content(), stream]
    assert KEY not in "".join(traffic)
    assert axe_violations(page, COLUMN) == []


def test_columns_are_duplicated_run_alone_and_compared_by_keys(session, provider):
    def answer(received):
        text = received.json()["messages"][0]["content"]
        return Reply(text=f"It takes {'five' if text == QUESTION else 'seven'} days.")

    provider.answer = answer
    save_draft(session, setting())
    page = open_playground(session)

    column(page, "A").get_by_label("Text of the message").focus()
    page.keyboard.press("Control+d")
    field = column(page, "B").get_by_label("Text of the message")
    expect(field).to_be_focused()
    page.keyboard.press("Control+Enter")
    expect(reply_in(page, "A")).to_have_attribute("data-status", "success")
    expect(reply_in(page, "B")).to_have_attribute("data-status", "success")
    field.fill("Again: {question}")
    expect(page.locator("[data-run-all]")).to_contain_text("Run B")
    page.keyboard.press("Alt+b")
    expect(reply_in(page, "B")).to_contain_text("It takes seven days.")

    assert len(provider.requests) == 3
    expect(column(page, "B").locator(".play-differences")).to_have_text("message 1 changed")
    page.locator("h1").click()
    page.keyboard.press("v")
    expect(column(page, "B").locator("del")).to_have_text("five")
    expect(column(page, "B").locator("ins")).to_have_text("seven")
    page.keyboard.press("v")
    expect(column(page, "B").locator("ins")).to_have_count(0)


def test_result_of_a_tool_call_continues_the_reply(session, provider):
    provider.answer = Reply(text="", tool_calls=[("search", {"q": "refund"})])
    save_draft(session, setting(tools=[SEARCH]))
    page = open_playground(session)

    page.keyboard.press("Control+Enter")
    field = page.get_by_label("Result of search")
    expect(field).to_have_value("Refunds take five days.")
    assert axe_violations(page, COLUMN) == []
    provider.answer = Reply(text="Five days.")
    field.fill("Refunds take six days.")
    page.get_by_role("button", name="Continue").click()

    expect(reply_in(page, "A")).to_contain_text("Five days.")
    question, call, result = provider.bodies[1]["messages"]
    assert question["content"] == QUESTION
    assert json.loads(call["tool_calls"][0]["function"]["arguments"]) == {"q": "refund"}
    assert result["content"] == "Refunds take six days."
    expect(page.locator(".tool-call-result")).to_contain_text("Refunds take six days.")


AGENT = "/agents/support"
SEARCH_TOOL = {
    "name": "search",
    "description": "Finds documents",
    "inputSchema": {"type": "object", "properties": {"q": {"type": "string"}}},
}


def deploy_agent(session, answers):
    """A deployed agent, whose routes answer with these values; return the requests."""
    deployment = DeploymentFactory(workspace=session.workspace, name="support")
    deployment.active_revision = RevisionFactory(deployment=deployment)
    deployment.save()
    requests = []

    def handle(route):
        path = route.request.url.partition(AGENT)[2]
        body = route.request.post_data_json if route.request.post_data else None
        requests.append((path, body))
        answer = answers[path]
        answer = answer(body) if callable(answer) else answer
        if isinstance(answer, str):
            route.fulfill(body=answer, content_type="text/event-stream")
        else:
            route.fulfill(json=answer)

    session.page.route(f"**{AGENT}/**", handle)
    return requests


def test_tool_of_a_deployed_agent_is_taken_over_and_called(session, provider):
    def answer_mcp(message):
        if message["method"] == "tools/list":
            return {"jsonrpc": "2.0", "id": 1, "result": {"tools": [SEARCH_TOOL]}}
        content = [{"type": "text", "text": "Refunds take four days."}]
        return {"jsonrpc": "2.0", "id": 1, "result": {"content": content}}

    requests = deploy_agent(session, {"/mcp": answer_mcp})
    provider.answer = Reply(text="", tool_calls=[("search", {"q": "refund"})])
    save_draft(session, setting())
    page = open_playground(session)

    page.get_by_role("group", name="Column A").get_by_text("Tools", exact=True).click()
    page.get_by_role("button", name="Tool", exact=True).click()
    page.get_by_role("combobox", name="Results").select_option("agent support")
    expect(page.get_by_role("textbox", name="Name of the tool")).to_have_value("search")
    expect(page.get_by_label("Description of the tool")).to_have_value("Finds documents")
    assert axe_violations(page, COLUMN) == []
    page.keyboard.press("Control+Enter")
    button = page.get_by_role("button", name="Call it")
    button.click()
    expect(page.get_by_label("Result of search")).to_have_value("Refunds take four days.")
    assert axe_violations(page, COLUMN) == []
    provider.answer = Reply(text="Four days.")
    page.get_by_label("Result of search").press("Control+Enter")

    expect(reply_in(page, "A")).to_contain_text("Four days.")
    assert requests[-1][1]["params"] == {"name": "search", "arguments": {"q": "refund"}}
    assert [body["messages"][-1]["content"] for body in provider.bodies] == [
        QUESTION,
        "Refunds take four days.",
    ]


def test_webhook_of_a_tool_is_called_and_its_failure_is_shown(session, provider, settings):
    settings.ALLOW_LOCAL_WEBHOOKS = True

    def answer(received):
        if received.path == "/tools/search":
            return failure or Reply(raw=b"Refunds take three days.")
        is_first = len(received.json()["messages"]) == 1
        return Reply(text="", tool_calls=[("search", {"q": "a"})]) if is_first else Reply("Three.")

    failure = Reply(status=500, error="No index.")
    provider.answer = answer
    target = {"url": f"{provider.url}/tools/search"}
    save_draft(session, setting(tools=[{**SEARCH, "result": None, "target": target}]))
    page = open_playground(session)

    page.keyboard.press("Control+Enter")
    button = page.get_by_role("button", name="Call and continue")
    button.click()
    expect(page.get_by_role("alert")).to_contain_text("The tool answered 500")
    failure = None
    button.click()

    expect(reply_in(page, "A")).to_contain_text("Three.")
    expect(page.locator(".tool-call-result")).to_contain_text("Refunds take three days.")
    refused = [text for text in session.console_errors if "502" in text]
    assert len(refused) == 1
    session.console_errors.remove(refused[0])


def stream_events(*events):
    return "".join(f"event: {name}\ndata: {json.dumps(data)}\n\n" for name, data in events)


def test_agent_answers_in_a_column_beside_a_model(session, provider):
    call = {"id": "c1", "name": "search", "args": {"q": "refund"}}
    usage = {"input_tokens": 30, "output_tokens": 7, "total_tokens": 37}
    messages = [
        {"type": "human", "id": "m1", "content": QUESTION},
        {"type": "ai", "id": "m2", "content": "", "tool_calls": [call]},
        {"type": "tool", "id": "m3", "tool_call_id": "c1", "content": "Policy: five days."},
        {"type": "ai", "id": "m4", "content": "Five days.", "usage_metadata": usage},
    ]
    chunk = {"type": "AIMessageChunk", "id": "m4", "content": "Five "}
    run_id = "01990000-0000-7000-8000-000000000001"
    schema = {
        "properties": {"tone": {"type": "string"}, "limit": {"type": "integer", "default": 3}}
    }
    requests = deploy_agent(
        session,
        {
            "/assistants/search": [{"assistant_id": "a1", "name": "agent", "graph_id": "agent"}],
            "/assistants/a1/schemas": {"graph_id": "agent", "context_schema": schema},
            "/runs/stream": stream_events(
                ("metadata", {"run_id": run_id}),
                ("messages", [chunk, {}]),
                ("values", {"messages": messages}),
            ),
        },
    )
    page = open_playground(session, "?agent=support")

    expect(page.get_by_label("Model or agent")).to_have_value("agent support")
    expect(page.get_by_role("combobox", name="Assistant")).to_have_value("a1")
    page.get_by_label("tone").fill("brief")
    page.get_by_label("message").last.fill(QUESTION)
    page.keyboard.press("Control+Enter")

    reply = column(page, "A").locator(".play-agent-reply")
    expect(reply.locator(".play-figures").last).to_contain_text("30 → 7")
    expect(reply).to_contain_text("Policy: five days.")
    expect(reply).to_contain_text("Five days.")
    expect(reply.get_by_role("link", name="Open run")).to_have_attribute(
        "href", f"{session.path}/r/{run_id}"
    )
    assert axe_violations(page, COLUMN) == []
    [body] = [body for path, body in requests if path == "/runs/stream"]
    assert body["assistant_id"] == "a1"
    assert body["context"] == {"tone": "brief"}
    assert body["input"] == {"messages": [{"role": "user", "content": QUESTION}]}
    expect(page.locator("[data-saved]")).to_have_text("Saved")
    [draft] = Draft.objects.for_workspace(session.workspace)
    assert draft.state["columns"][0]["setting"]["agent"] == {
        "slug": "support",
        "assistant": "a1",
        "context": {"tone": "brief"},
    }
    # A menu changes the column back to its model.
    page.get_by_label("Model or agent").select_option("openai gpt-4.1-mini")
    page.keyboard.press("Control+Enter")
    expect(reply_in(page, "A")).to_contain_text("Hello there")


def read_python(code):
    """The keywords with which code for OpenAI's client makes its call."""
    calls = []

    class Client:
        @property
        def chat(self):
            return SimpleNamespace(completions=SimpleNamespace(create=self.create))

        def create(self, **keywords):
            calls.append(keywords)
            message = SimpleNamespace(message=None)
            return SimpleNamespace(choices=[message])

    module = SimpleNamespace(OpenAI=Client)
    with mock.patch.dict(sys.modules, openai=module), redirect_stdout(StringIO()):
        exec(code, {})
    (keywords,) = calls
    return keywords


def test_json_reply_is_a_tree_that_continues_the_prompt_and_the_code_does_the_same(
    session, provider
):
    provider.answer = Reply(text='{"answer": {"days": 5}}')
    save_draft(session, setting())
    page = open_playground(session)
    play = column(page, "A")

    play.get_by_text("Response schema", exact=True).click()
    play.get_by_role("button", name="Any JSON object").click()
    page.keyboard.press("Control+Enter")
    expect(reply_in(page, "A").locator("json-view")).to_contain_text("days")
    reply_in(page, "A").get_by_role("button", name="Copy the reply").click()
    assert json.loads(page.evaluate("navigator.clipboard.readText()")) == {"answer": {"days": 5}}
    reply_in(page, "A").get_by_role("button", name="Add the reply to the prompt").click()
    added = play.get_by_label("Text of the message").last
    expect(added).to_be_focused()
    expect(added).to_have_value('{{"answer": {{"days": 5}}}}')
    provider.answer = Reply(text="Yes.")
    added.press("Control+Enter")
    expect(reply_in(page, "A")).to_contain_text("Yes.")
    play.get_by_title("Actions").click()
    play.get_by_role("button", name="Copy as Python").click()
    expect(page.get_by_text("Copied as Python")).to_be_visible()

    first, second = provider.bodies
    assert first["response_format"] == {"type": "json_object"}
    assert second["messages"] == [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": '{"answer": {"days": 5}}'},
    ]
    assert read_python(page.evaluate("navigator.clipboard.readText()")) == {
        name: second[name] for name in ("model", "messages", "response_format")
    }


def test_failures_of_providers_are_explained_in_their_column(session, provider):
    provider.answer = Reply(status=429, headers={"retry-after": "2"}, error="Slow down.")
    anthropic = setting(model={"provider": "anthropic", "model": "claude-sonnet-4-5"})
    save_draft(session, setting(), anthropic)
    page = open_playground(session)
    notice = column(page, "B").locator("[data-no-key]")
    expect(notice).to_contain_text("No key for Anthropic. Add one")

    page.keyboard.press("Control+Enter")
    expect(reply_in(page, "A")).to_contain_text("429")
    button = reply_in(page, "A").get_by_role("button", name="Retry")
    expect(button).to_be_disabled()
    expect(reply_in(page, "B")).to_contain_text("no key for Anthropic")
    assert axe_violations(page, ".play-columns") == []
    provider.answer = Reply(text="Five days.")
    expect(button).to_be_enabled()
    button.click()
    expect(reply_in(page, "A")).to_contain_text("Five days.")

    provider.answer = Reply(status=401, error="Wrong key.")
    page.keyboard.press("Alt+a")
    expect(reply_in(page, "A")).to_contain_text("401")
    assert KEY not in page.content()
    refused = [text for text in session.console_errors if "409" in text]
    assert len(refused) == 1
    session.console_errors.remove(refused[0])


def test_escape_stops_the_reply_and_the_call_of_the_provider(session, provider):
    provider.answer = Reply(text="word " * 200, seconds_per_word=0.05)
    save_draft(session, setting())
    page = open_playground(session)

    page.keyboard.press("Control+Enter")
    expect(reply_in(page, "A")).to_contain_text("word")
    assert axe_violations(page, COLUMN) == []
    page.keyboard.press("Escape")

    expect(reply_in(page, "A")).to_have_attribute("data-status", "stopped")
    expect(page.get_by_role("button", name="Stop all")).to_be_hidden()
    assert provider.aborted.wait(30)


def test_reply_that_breaks_the_schema_is_marked_at_its_path(session, provider):
    provider.answer = Reply(text='{"items": [{"id": 1}]}')
    schema = {
        "type": "object",
        "properties": {
            "items": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"id": {"type": "string"}},
                    "required": ["id"],
                    "additionalProperties": False,
                },
            }
        },
        "required": ["items"],
        "additionalProperties": False,
    }
    save_draft(session, setting(response_schema=schema))
    page = open_playground(session)

    page.keyboard.press("Control+Enter")

    expect(reply_in(page, "A")).to_have_attribute("data-invalid", "")
    expect(reply_in(page, "A").locator("li")).to_contain_text("$.items[0].id")
    expect(reply_in(page, "A").locator("[data-marked]")).to_have_text("id: 1")
    assert axe_violations(page, COLUMN) == []


def test_repeated_runs_state_their_spread_and_their_different_answers(session, provider):
    texts = iter(["Five days.", "Six days.", "Five days."])
    provider.answer = lambda _: Reply(text=next(texts))
    save_draft(session, setting())
    page = open_playground(session)

    page.get_by_label("Repeat").select_option("3")
    page.keyboard.press("Control+Enter")

    expect(page.locator(".play-spread")).to_contain_text("2 different answers")
    expect(page.locator(".play-group")).to_have_text("2 times")
    expect(page.locator(".play-reply")).to_have_count(2)


def test_draft_is_kept_and_its_link_is_read_only(session):
    page = open_playground(session)
    page.get_by_label("Text of the message").nth(1).fill("Say {word}")
    page.get_by_label("word").fill("hello")
    expect(page.locator("[data-saved]")).to_have_text("Saved")
    open_playground(session)
    expect(page.get_by_label("Text of the message").nth(1)).to_have_value("Say {word}")
    expect(page.get_by_label("word")).to_have_value("hello")

    page.get_by_role("button", name="Share").click()
    link = page.get_by_role("dialog").get_by_label("Link", exact=True)
    expect(link).to_have_value(re.compile(r"/playground\?share="))
    address = link.input_value()
    session.goto(address)

    expect(page.get_by_label("Text of the message").nth(1)).to_be_disabled()
    expect(page.locator("[data-run-all]")).to_be_disabled()
    page.get_by_role("button", name="Edit a copy").click()
    page.wait_for_url("**/playground")
    expect(page.get_by_label("Text of the message").nth(1)).to_be_enabled()


@pytest.mark.parametrize("size", [1_000, 200_000])
def test_last_change_survives_leaving_at_once(session, size):
    """A request that outlives its page has at most 64 KB; a larger draft waits in the browser."""
    save_draft(session, setting("x" * size))
    page = open_playground(session)
    page.get_by_label("Text of the message").press_sequentially("last words ")
    expect(page.locator("[data-saved]")).to_have_text("")
    session.goto(f"{session.path}/prompts")

    open_playground(session)

    expect(page.get_by_label("Text of the message")).to_have_value(re.compile("last words"))
    [draft] = Draft.objects.for_workspace(session.workspace)
    wait_until(lambda: "last words" in str(read_again(draft).state), "the draft")
    keys = "Object.keys(localStorage).filter((key) => key.startsWith('playground-draft'))"
    wait_until(lambda: page.evaluate(keys) == [], "the kept draft to go")


def read_again(row):
    row.refresh_from_db()
    return row


def test_changed_prompt_is_marked_and_committed(session):
    prompt = create_prompt(session.workspace, "support")
    head = create_commit(prompt, "Answer {question}.")
    page = open_playground(session, "?prompt=support")
    heading = column(page, "A").get_by_role("heading", level=2)
    expect(heading).to_have_text(f"support · {head.commit_hash[:8]}")
    mark = column(page, "A").locator("[data-changed]")
    expect(mark).to_be_hidden()

    page.get_by_label("Text of the message").last.fill("Answer {question} briefly.")
    expect(mark).to_be_visible()
    page.get_by_title("Actions").click()
    page.get_by_role("button", name="Save as commit").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(f"The parent is {head.commit_hash[:8]}.")
    assert axe_violations(page, "#play-commit") == []
    dialog.get_by_label("What changed").fill("Shorter answers")
    dialog.get_by_role("button", name="Commit").click()

    expect(mark).to_be_hidden()
    repository = Repository.objects.for_workspace(session.workspace).get()
    assert repository.num_commits == 2
    assert repository.head.description == "Shorter answers"
    assert "Answer {question} briefly." in json.dumps(repository.head.manifest)


def open_commit_dialog(page, message):
    page.get_by_title("Actions").click()
    page.get_by_role("button", name="Save as commit").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("What changed").fill(message)
    return dialog


def forget_conflicts(session):
    """A refused commit is an error in the console of the browser."""
    conflicts = [text for text in session.console_errors if "409" in text]
    assert conflicts
    for text in conflicts:
        session.console_errors.remove(text)


def commit_messages(prompt, *texts):
    content = build_manifest(convert(setting(*texts), Setting))
    return create_prompt_commit(repository=prompt, content=content)


def test_commit_on_a_newer_one_is_rebased_part_by_part(session):
    prompt = create_prompt(session.workspace, "support")
    commit_messages(prompt, "Answer {question}.", "Be brief.")
    page = open_playground(session, "?prompt=support")
    texts = page.get_by_label("Text of the message")
    texts.nth(0).fill("Answer {question} in French.")
    newer = commit_messages(prompt, "Answer {question}.", "Be polite.")

    dialog = open_commit_dialog(page, "French")
    dialog.get_by_role("button", name="Commit").click()
    conflict = dialog.locator("[data-conflict]")
    expect(conflict).to_contain_text(f"A newer commit exists: {newer.commit_hash[:8]}.")
    expect(conflict).to_contain_text("It changed message 2.")
    conflict.get_by_text("See the difference from yours").click()
    expect(conflict.locator("ins")).to_contain_text(["in French"])
    assert axe_violations(page, "#play-commit") == []
    conflict.get_by_role("button", name="Rebase").click()
    expect(conflict).to_contain_text("with its message 2")
    dialog.get_by_role("button", name="Commit", exact=True).click()

    expect(texts.nth(1)).to_have_value("Be polite.")
    head = Repository.objects.for_workspace(session.workspace).get().head
    assert head.parent_hash == newer.commit_hash
    assert "Answer {question} in French." in json.dumps(head.manifest)
    assert "Be polite." in json.dumps(head.manifest)
    forget_conflicts(session)


def test_conflicting_part_is_chosen_and_commit_on_top_replaces_the_newer_one(session):
    prompt = create_prompt(session.workspace, "support")
    commit_messages(prompt, "Answer {question}.")
    page = open_playground(session, "?prompt=support")
    text = page.get_by_label("Text of the message")
    text.fill("Answer {question} in French.")
    commit_messages(prompt, "Answer {question} politely.")

    dialog = open_commit_dialog(page, "Theirs")
    dialog.get_by_role("button", name="Commit").click()
    dialog.get_by_role("button", name="Rebase").click()
    dialog.get_by_label("Both changed message 1").select_option("theirs")
    dialog.get_by_label("Both changed message 1").select_option("mine")
    dialog.get_by_role("button", name="Commit", exact=True).click()
    expect(dialog).to_be_hidden()
    newest = commit_messages(prompt, "Answer {question} shortly.")
    text.fill("Answer {question} in Greek.")
    dialog = open_commit_dialog(page, "Greek")
    dialog.get_by_role("button", name="Commit").click()
    dialog.get_by_role("button", name="Commit on top").click()
    dialog.get_by_role("button", name="Commit", exact=True).click()
    expect(dialog).to_be_hidden()

    head = Repository.objects.for_workspace(session.workspace).get().head
    assert head.parent_hash == newest.commit_hash
    assert "in Greek" in json.dumps(head.manifest)
    assert head.number == 5
    forget_conflicts(session)


def test_narrow_screen_shows_one_column_and_the_variables_as_a_sheet(session):
    save_draft(session, setting(), setting("{question} {tone}"))
    session.page.set_viewport_size({"width": 390, "height": 844})
    page = open_playground(session)
    expect(column(page, "B")).to_be_hidden()

    page.get_by_role("group", name="Column", exact=True).get_by_role("button", name="B").click()
    expect(column(page, "B")).to_be_visible()
    expect(column(page, "A")).to_be_hidden()
    page.get_by_role("button", name="Variables").click()
    page.get_by_label("tone").fill("calm")
    assert axe_violations(page, ".play-variables") == []
    page.keyboard.press("Escape")

    expect(page.get_by_role("button", name="Variables")).to_be_focused()
    assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")


def test_messages_are_added_moved_and_given_an_image(session, provider):
    pixel = (
        b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00"
        b"\x1f\x15\xc4\x89\x00\x00\x00\rIDATx\x9cc\xf8\xcf\xc0P\x0f\x00\x04\x85\x01\x80\x84"
        b"\xa9\x8c!\x00\x00\x00\x00IEND\xaeB`\x82"
    )
    save_draft(session, setting("First"))
    page = open_playground(session)

    page.get_by_role("button", name="Message", exact=True).click()
    expect(page.get_by_label("Text of the message").nth(1)).to_be_focused()
    page.keyboard.type("Second")
    page.get_by_label("Move the message", exact=True).nth(1).press("ArrowUp")
    expect(page.get_by_label("Text of the message").nth(0)).to_have_value("Second")
    page.locator("input[type=file]").nth(1).set_input_files(
        {"name": "pixel.png", "mimeType": "image/png", "buffer": pixel}
    )
    expect(page.get_by_role("img", name="image/png")).to_be_visible()
    page.keyboard.press("Control+Enter")
    expect(reply_in(page, "A")).to_have_attribute("data-status", "success")

    first, second = provider.bodies[0]["messages"]
    assert (first["role"], first["content"]) == ("assistant", "Second")
    assert second["content"][0] == {"type": "text", "text": "First"}
    assert second["content"][1]["image_url"]["url"].startswith("data:image/png;base64,")


@pytest.fixture
def worker():
    worker = CallWorker()
    yield worker
    worker.stop()


@pytest.mark.parametrize(
    ("example_count", "letters"),
    [(6, "AB"), pytest.param(200, "ABC", marks=pytest.mark.slow)],
)
def test_columns_run_over_a_dataset_are_cancelled_resumed_and_recorded(
    session, provider, worker, example_count, letters
):
    provider.answer = lambda received: Reply(
        text=f"Re: {received.json()['messages'][0]['content']}"
    )
    questions = [{"question": f"Question {n}"} for n in range(example_count)]
    dataset = make_dataset(session.workspace, *questions, name="support-golden")
    save_draft(session, *(setting(f"{letter}: {{question}}") for letter in letters))
    page = open_playground(session)

    def work_until(text, letter="A"):
        """Do what beat and the worker process do, until the line of the letter has the text."""
        line = page.locator(".play-progress").nth("ABC".index(letter))
        for _ in range(200):
            execution.advance_organization(session.workspace.organization_id)
            worker.wake()
            page.wait_for_timeout(100)
            if text in line.inner_text():
                return
        expect(line).to_contain_text(text)

    page.get_by_role("button", name="Dataset", exact=True).click()
    page.locator("[data-dataset]").select_option(str(dataset.pk))
    matching = page.locator(".play-matching li")
    expect(matching).to_have_count(len(letters))
    expect(matching.first).to_have_text(f"A: {example_count} of {example_count} rows match")
    page.get_by_label("Name of the experiments").fill("trial")
    page.locator("[data-run-all]").click()
    lines = page.locator(".play-progress")
    expect(lines).to_have_count(len(letters))
    lines.nth(1).get_by_role("button", name="Cancel").click()
    work_until(f"{example_count} of {example_count}")
    work_until("cancelled", "B")
    assert axe_violations(page, ".play-dataset") == []
    expect(page.locator("[data-saved]")).to_have_text("Saved")

    open_playground(session)
    lines.nth(1).get_by_role("button", name="Resume").click()
    work_until("completed", "B")
    for letter in letters:
        work_until("completed", letter)

    cell = page.locator(".comparison-table tbody tr").first.locator(".comparison-output").nth(1)
    expect(cell).to_contain_text("Re: B: Question")
    assert len(provider.requests) == example_count * len(letters)
    names = Project.objects.for_workspace(session.workspace).filter(name__startswith="trial")
    assert names.count() == len(letters)
    assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")
    page.get_by_role("link", name="Compare the experiments").click()
    expect(page.locator(".compared-chip")).to_have_count(len(letters))
