"""A trace is shown as the conversation that it is: turns, tool calls, agents within agents."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from apps.feedback.models import Feedback
from apps.tracing.models import Share
from apps.tracing.pages.transcripts import loading
from apps.tracing.services import sharing
from tests.console.conftest import create_workspace_user, signed_in
from tests.factories.organizations import WorkspaceFactory
from tests.factories.tracing import ingest, read_run, wire_run
from tests.tracing.messages.payloads import CONVERSATIONS, NO_PARCEL, QUESTION, REPLY, SHIPPED

pytestmark = pytest.mark.django_db
START = datetime.now(UTC) - timedelta(hours=2)


def step(parent, begin: float, end: float, **fields):
    """Build a run that starts and ends that many seconds after START."""
    return wire_run(
        parent,
        start=START + timedelta(seconds=begin),
        end_time=(START + timedelta(seconds=end)).isoformat(),
        **fields,
    )


def model(parent, begin, end, inputs, outputs, **fields):
    fields = {"name": "chat", "run_type": "llm"} | fields
    return step(
        parent, begin, end, inputs={"messages": inputs}, outputs={"messages": [outputs]}, **fields
    )


def call(call_id, name, **arguments):
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": call_id, "type": "function", "function": function}


USER = {"role": "user", "content": "Where is order 7?"}
SYSTEM = {"role": "system", "content": "You help with orders."}
ASKS = {
    "role": "assistant",
    "content": "I look it up.",
    "tool_calls": [call("c1", "find_order", order=7), call("c2", "find_parcel", parcel="x")],
}
ANSWERS = [
    {"role": "tool", "tool_call_id": "c1", "content": "shipped"},
    {"role": "tool", "tool_call_id": "c2", "content": "no such parcel", "status": "error"},
]
FINAL = {"role": "assistant", "content": "It arrives on Tuesday."}


@pytest.fixture
def desk():
    """A trace: a model call, its two tool calls at once, a model call with the answer."""
    root = step(
        None, 0, 10, name="desk", inputs={"messages": [USER]}, outputs={"messages": [FINAL]}
    )
    tool = {"run_type": "tool", "inputs": {"input": "{}"}}
    return [
        root,
        model(root, 1, 2, [SYSTEM, USER], ASKS),
        step(root, 2, 4, name="find_order", outputs={"output": "shipped"}, **tool),
        step(root, 2.5, 3, name="find_parcel", error="NotFound: no such parcel", **tool),
        model(root, 7, 9, [SYSTEM, USER, ASKS, *ANSWERS], FINAL),
    ]


def trace_url(workspace, run):
    project_id = read_run(workspace, run["id"]).row.project_id
    return f"/o/{workspace.pk}/projects/p/{project_id}/r/{run['id']}"


def transcript_of(page, workspace, runs):
    ingest(workspace, *runs)
    response = page.get(trace_url(workspace, runs[0]))
    assert response.status_code == 200
    return response.context["transcript"], response


def texts(messages):
    return [(message.role, message.text) for message in messages]


def test_transcript_shows_each_message_once_and_joins_calls_with_their_runs(page, workspace, desk):
    transcript, response = transcript_of(page, workspace, desk)

    question, first, second = transcript.blocks
    assert [block.kind for block in transcript.blocks] == ["input", "turn", "turn"]
    assert texts(question.messages) == [("human", "Where is order 7?")]
    assert texts(first.system) == [("system", "You help with orders.")]
    assert (list(first.messages), first.context) == ([], 1)
    assert texts(first.reply) == [("ai", "I look it up.")]
    [group] = first.calls
    assert (group.is_parallel, group.duration) == (True, timedelta(seconds=2))
    order, parcel = group.calls
    assert (order.run.name, order.status, order.arguments) == (
        "find_order",
        "success",
        [("order", "7")],
    )
    assert [part.text for part in order.call.result] == ["shipped"]
    assert (parcel.status, parcel.error.title) == ("error", "NotFound: no such parcel")
    assert (list(second.messages), texts(second.reply)) == (
        [],
        [("ai", "It arrives on Tuesday.")],
    )
    assert second.wait == timedelta(seconds=3)
    assert (transcript.model_calls, transcript.tool_calls, transcript.errors) == (2, 2, 1)
    text = response.content.decode()
    assert "2 calls in parallel" in text
    assert text.count("It arrives on Tuesday.") == 1
    assert "trace-tree" not in text


def test_calls_that_a_trace_ends_with_are_no_output(page, workspace):
    asks = ASKS | {"content": ""}
    root = step(None, 0, 3, name="desk", outputs={"messages": [USER, asks]})
    runs = [root | {"inputs": {"messages": [USER]}}, model(root, 1, 2, [USER], asks)]

    transcript, _ = transcript_of(page, workspace, runs)

    assert [block.kind for block in transcript.blocks] == ["input", "turn"]
    names = [view.call.name for group in transcript.blocks[1].calls for view in group.calls]
    assert names == ["find_order", "find_parcel"]


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_conversation_of_each_format_is_whole_in_the_transcript(page, workspace, name):
    inputs, outputs = CONVERSATIONS[name]
    root = step(None, 0, 10, name="desk", inputs={"n": 1}, outputs={"done": True})
    chat = step(root, 1, 2, name="chat", run_type="llm", inputs=inputs, outputs=outputs)

    transcript, response = transcript_of(page, workspace, [root, chat])

    [turn] = [block for block in transcript.blocks if block.kind == "turn"]
    assert [message.role for message in (*turn.system, *turn.messages)] == ["system", "human", "ai"]
    assert texts(turn.reply) == [("ai", REPLY)]
    text = response.content.decode()
    for part in (QUESTION, SHIPPED, NO_PARCEL, REPLY, "data:image/png;base64,"):
        assert part in text


def test_tool_run_that_no_model_asked_for_is_a_block_of_its_own(page, workspace):
    root = step(None, 0, 10, name="desk")
    runs = [
        root,
        step(root, 1, 2, name="load", run_type="tool", outputs={"output": "7 orders"}),
        model(root, 3, 4, [USER], FINAL),
    ]

    transcript, response = transcript_of(page, workspace, runs)

    assert [block.kind for block in transcript.blocks] == ["input", "tool", "turn", "output"]
    [group] = transcript.blocks[1].calls
    assert [part.text for part in group.calls[0].call.result] == ["7 orders"]
    assert "Called by code" in response.content.decode()


FOUND = {"documents": [{"page_content": "Parcels ship on Monday.", "metadata": {}}]}


@pytest.mark.parametrize("has_model", [True, False])
def test_retrieval_within_a_tool_run_stands_in_its_call(page, workspace, has_model):
    root = step(None, 0, 10, name="desk")
    asks = {"role": "assistant", "content": "", "tool_calls": [call("c", "search_docs", q="x")]}
    task = step(root, 2, 5, name="search_docs", run_type="tool", outputs={"output": "Monday"})
    chain = step(task, 2, 5, name="RunnableSequence")
    found = step(chain, 3, 4, name="docs", run_type="retriever", outputs=FOUND)
    failed = step(chain, 4, 5, name="wiki", run_type="retriever", error="Boom: no index")
    alone = step(root, 6, 7, name="memory", run_type="retriever", outputs=FOUND)
    models = [model(root, 1, 2, [USER], asks)] if has_model else []
    for run in (found, alone):
        Feedback(workspace=workspace, run_id=run["id"], key="useful", score=1.0).save()

    transcript, response = transcript_of(
        page,
        workspace,
        [root, *models, task, chain, found, failed, alone, model(root, 8, 9, [USER], FINAL)],
    )

    kinds = [block.kind for block in transcript.blocks]
    first = "turn" if has_model else "tool"
    assert kinds == ["input", first, "retrieval", "turn", "output"]
    [group] = transcript.blocks[1].calls
    [call_view] = group.calls
    assert [block.title for block in call_view.retrievals] == ["docs", "wiki"]
    assert [error.title for error in transcript.blocks[1].call_errors] == ["Boom: no index"]
    assert transcript.blocks[2].title == "memory"
    assert response.text.count("Parcels ship on Monday.") == 2
    assert response.text.count("<span>useful</span>1") == 2
    copied = page.get(trace_url(workspace, root) + "/transcript.md").content.decode()
    assert copied.index("**Retrieval** docs") < copied.index("Monday") < copied.index("**Result**")


def agent_metadata(**metadata):
    return {"extra": {"metadata": metadata}}


@pytest.mark.parametrize(
    "fields",
    [
        agent_metadata(ls_agent_type="subagent"),
        agent_metadata(lc_agent_name="researcher"),
        agent_metadata(**{"gen_ai.operation.name": "invoke_agent"}),
    ],
)
def test_agent_called_by_a_tool_is_a_card_below_the_call(page, workspace, fields):
    outer = agent_metadata(lc_agent_name="support")
    root = step(None, 0, 10, name="desk", **outer)
    asks = {
        "role": "assistant",
        "content": "",
        "tool_calls": [call("c", "research", topic="tides")],
    }
    task = step(root, 2, 8, name="research", run_type="tool", outputs={"output": "high"}, **outer)
    inner = step(task, 2, 8, name="researcher", **fields)
    inner_chat = model(inner, 3, 4, [{"role": "user", "content": "tides"}], FINAL, **fields)

    transcript, response = transcript_of(
        page, workspace, [root, model(root, 1, 2, [USER], asks, **outer), task, inner, inner_chat]
    )

    turn = transcript.blocks[1]
    [call_view] = turn.calls[0].calls
    [card] = call_view.agents
    assert (card.agent.name, card.agent.model_calls, card.agent.tool_calls) == ("researcher", 1, 0)
    assert card.path == "support › researcher"  # noqa: RUF001 - as the page shows it
    assert [block.kind for block in card.blocks] == ["turn"]
    assert [block.kind for block in transcript.blocks] == ["input", "turn", "output"]
    assert "agent-card" in response.content.decode()


def test_tool_run_with_a_model_call_below_is_an_agent(page, workspace):
    root = step(None, 0, 10, name="desk")
    asks = {"role": "assistant", "content": "", "tool_calls": [call("c", "research")]}
    task = step(root, 2, 8, name="research", run_type="tool", outputs={"output": "high"})

    transcript, _ = transcript_of(
        page,
        workspace,
        [root, model(root, 1, 2, [USER], asks), task, model(task, 3, 4, [USER], FINAL)],
    )

    [call_view] = transcript.blocks[1].calls[0].calls
    [card] = call_view.agents
    assert [part.text for part in call_view.call.result] == ["high"]
    assert (card.agent.row.name, [block.kind for block in card.blocks]) == ("research", ["turn"])


def test_middleware_is_left_out(page, workspace):
    root = step(None, 0, 10, name="desk")
    hidden = model(root, 1, 2, [USER], FINAL, **agent_metadata(ls_agent_type="middleware"))

    transcript, _ = transcript_of(
        page, workspace, [root, hidden, model(root, 3, 4, [USER], FINAL, name="shown")]
    )

    assert [b.row.name for b in transcript.blocks if b.kind == "turn"] == ["shown"]


def test_hidden_runs_are_counted_and_shown_on_request(page, workspace):
    root = step(None, 0, 9, name="desk", inputs={"messages": [USER]})
    guard = agent_metadata(ls_agent_type="middleware")
    runs = [
        root,
        model(root, 1, 2, [USER], FINAL),
        model(
            root, 3, 4, [USER], {"role": "assistant", "content": "harmless"}, name="guard", **guard
        ),
    ]
    transcript, response = transcript_of(page, workspace, runs)

    shown = page.get(trace_url(workspace, root), {"hidden": "1"})

    assert transcript.hidden_runs == 1
    assert "Show 1 hidden run<" in response.text.replace("\n", "").replace("  ", "")
    assert len(shown.context["transcript"].blocks) == len(transcript.blocks) + 1
    assert "harmless" not in response.text
    assert "harmless" in shown.text


def test_feedback_stands_in_the_margin_of_its_block(page, workspace, desk):
    ingest(workspace, *desk)
    Feedback(workspace=workspace, run_id=desk[1]["id"], key="helpful", score=0.5).save()

    response = page.get(trace_url(workspace, desk[0]))
    share = sharing.share_trace(workspace.pk, UUID(desk[0]["id"]))
    public = Client().get(f"/public/{share.token}/r")

    first = response.context["transcript"].blocks[1]
    assert list(first.feedback) == [("helpful", "0.5")]
    assert "<span>helpful</span>0.5" in response.text
    assert "<span>helpful</span>" not in public.text


def test_feedback_on_a_root_without_a_block_stands_in_the_head(page, workspace, desk):
    ingest(workspace, *desk)
    Feedback(workspace=workspace, run_id=desk[0]["id"], key="solved", score=1).save()

    response = page.get(trace_url(workspace, desk[0]))

    transcript = response.context["transcript"]
    assert list(transcript.root_feedback) == [("solved", "1")]
    assert response.text.count("<span>solved</span>1") == 1


@pytest.mark.parametrize(
    ("error", "kinds"),
    [
        ("NotFound: no such parcel\n\nTraceback", ["input", "turn"]),
        ("GraphRecursionError: limit", ["input", "turn", "error"]),
    ],
)
def test_error_of_a_call_that_ended_the_trace_is_shown_once(page, workspace, desk, error, kinds):
    root, chat, order, parcel, _ = desk
    root |= {"error": error, "outputs": None}

    transcript, _ = transcript_of(page, workspace, [root, chat, order, parcel])

    assert [block.kind for block in transcript.blocks] == kinds


def test_changed_keys_of_the_state_are_a_folded_block(page, workspace):
    outputs = {"messages": [USER, FINAL], "topic": "orders", "steps": [1, 2], "kept": "x"}
    root = step(None, 0, 9, name="desk", inputs={"messages": [USER], "kept": "x"}, outputs=outputs)
    transcript, response = transcript_of(page, workspace, [root, model(root, 1, 2, [USER], FINAL)])

    [state] = [block for block in transcript.blocks if block.kind == "state"]
    assert list(state.state) == [("topic", '"orders"'), ("steps", "[1,2]")]
    assert "2 keys changed" in response.text


def test_running_trace_is_asked_for_its_new_state(page, workspace):
    start = datetime.now(UTC) - timedelta(seconds=20)
    root = wire_run(name="desk", start=start, inputs={"messages": [USER]})
    replies = {"inputs": {"messages": [USER]}, "outputs": {"messages": [FINAL]}}
    chat = wire_run(root, name="chat", run_type="llm", start=start, **replies)
    pending = {key: value for key, value in root.items() if key not in ("end_time", "outputs")}
    ingest(workspace, pending, chat)
    address = trace_url(workspace, root)

    opened = page.get(address)
    live_url = opened.context["live_url"]
    live = page.get(live_url)
    ingest(workspace, root)
    finished = page.get(live_url)

    assert f'hx-get="{live_url}"' in opened.text
    assert live.text.strip().startswith("<ol")
    assert "data-live" in live.text
    assert "It arrives on Tuesday." in finished.text
    assert "data-live" not in finished.text


def test_shortened_history_and_a_repeated_call_are_marked(page, workspace):
    root = step(None, 0, 10, name="desk")
    history = [{"role": "user", "content": f"message {n}"} for n in range(5)]
    runs = [
        root,
        model(root, 1, 2, history, FINAL),
        model(root, 2, 3, [{"role": "user", "content": "summary"}], FINAL, error="RateLimit: slow"),
        model(root, 3, 4, [{"role": "user", "content": "summary"}], FINAL),
    ]

    transcript, response = transcript_of(page, workspace, runs)

    turns = [block for block in transcript.blocks if block.kind == "turn"]
    assert [turn.replaced for turn in turns] == [None, (5, 1), None]
    assert [turn.attempt for turn in turns] == [1, 1, 2]
    assert "History replaced (5 → 1 messages)" in response.content.decode()
    assert "Attempt 2" in response.content.decode()


def test_error_shows_its_message_first_and_an_interrupt_is_no_error(page, workspace):
    trace = 'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: no such order'
    root = step(None, 0, 10, name="desk", error=trace)
    waiting = "GraphInterrupt((Interrupt(value='Refund?'),))"
    runs = [
        root,
        model(root, 1, 2, [USER], FINAL),
        step(root, 3, 4, name="approve", error=waiting),
        step(root, 4, 5, name="lookup", error=trace),
    ]

    transcript, response = transcript_of(page, workspace, runs)

    errors = [block.error for block in transcript.blocks if block.kind == "error"]
    assert [(error.title, error.is_interrupt) for error in errors] == [
        (waiting, True),
        ("ValueError: no such order", False),
    ]
    assert "Waiting for input" in response.content.decode()
    assert f'data-first-error="{runs[3]["id"]}"' in response.content.decode()


def test_long_trace_is_shown_by_pages_that_repeat_nothing(page, workspace, monkeypatch):
    monkeypatch.setattr(loading, "RUNS_PER_PAGE", 3)
    root = step(None, 0, 100, name="desk", inputs={"messages": [USER]}, outputs={"answer": "end"})
    runs, history = [root], [USER]
    for number in range(5):
        reply = {"role": "assistant", "content": f"reply {number}"}
        runs.append(model(root, number + 1, number + 2, list(history), reply))
        history += [reply, {"role": "user", "content": f"question {number}"}]
    ingest(workspace, *runs)
    url = trace_url(workspace, root)

    first = page.get(url)
    second = page.get(f"{url}/transcript?after=3")

    assert [block.kind for block in first.context["transcript"].blocks] == ["input", *["turn"] * 3]
    assert f"{url}/transcript?after=3" in first.content.decode()
    blocks = second.context["transcript"].blocks
    assert [texts(block.messages) for block in blocks[:2]] == [
        [("human", "question 2")],
        [("human", "question 3")],
    ]
    assert (blocks[2].kind, second.context["next_url"]) == ("output", "")
    assert page.get(f"{url}/transcript?after=x").status_code == 404


def test_large_input_adds_only_its_beginning_to_the_page(page, workspace):
    large = {"role": "user", "content": "line of a report\n" * 22_000}
    root = step(None, 0, 10, name="desk")

    _, response = transcript_of(page, workspace, [root, model(root, 1, 2, [large], FINAL)])

    assert len(large["content"]) > 367_000
    assert response.content.decode().count("line of a report") < 1_300
    assert "more characters in the run" in response.content.decode()


def test_trace_without_messages_opens_as_a_tree(page, workspace, desk):
    root = step(None, 0, 10, name="batch")
    ingest(workspace, root, step(root, 1, 2, name="load", run_type="tool"))

    response = page.get(trace_url(workspace, root))

    assert "transcript" not in response.context or response.context["mode"] == "tree"
    assert "No messages in this trace" in response.content.decode()


def test_last_choice_and_a_link_to_a_run_within_open_the_tree(page, workspace, desk):
    ingest(workspace, *desk)
    url = trace_url(workspace, desk[0])

    assert page.get(url).context["mode"] == "transcript"
    assert page.get(f"{url}?view=tree").context["mode"] == "tree"
    assert page.get(trace_url(workspace, desk[2])).context["mode"] == "tree"
    page.cookies["slipway_trace"] = "waterfall"
    assert page.get(url).context["mode"] == "waterfall"
    assert page.get(f"{url}?view=transcript").context["mode"] == "transcript"


def test_number_of_queries_does_not_grow_with_the_runs(page, workspace, desk):
    ingest(workspace, *desk)
    url = trace_url(workspace, desk[0])

    def count_queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert page.get(url).status_code == 200
        return len(captured)

    count_queries()
    before = count_queries()
    ingest(workspace, *(model(desk[0], 7, 8, [USER], FINAL) for _ in range(9)))

    assert count_queries() == before


def test_transcript_is_hidden_from_outsiders_and_downloads_as_markdown(page, workspace, desk):
    ingest(workspace, *desk)
    url = trace_url(workspace, desk[0])
    outsider = signed_in(create_workspace_user(WorkspaceFactory(), "admin"))

    markdown = page.get(f"{url}/transcript.md")

    assert markdown["Content-Type"] == "text/markdown; charset=utf-8"
    assert "attachment" in markdown["Content-Disposition"]
    text = markdown.content.decode()
    assert text.startswith("# desk\n")
    for part in ("Where is order 7?", "`find_order`", "shipped", "**Error:** NotFound"):
        assert part in text
    for path in ("/transcript", "/transcript.md", "?view=transcript"):
        assert outsider.get(url + path).status_code == 404


def test_public_link_shows_the_transcript_of_its_trace_alone(page, workspace, desk):
    ingest(workspace, *desk)
    url = trace_url(workspace, desk[0])
    page.post(f"{url}/share")
    token = Share.unscoped.get().token

    response = Client().get(f"/public/{token}/r")
    later = Client().get(f"/public/{token}/r/transcript?after=2")

    assert response.context["mode"] == "transcript"
    assert "It arrives on Tuesday." in response.content.decode()
    assert str(workspace.pk) not in response.content.decode()
    assert (later.status_code, later["Cache-Control"]) == (200, "private, no-store")
    page.post(f"{url}/share", {"action": "revoke"})
    assert Client().get(f"/public/{token}/r/transcript").status_code == 404


def test_trace_of_2000_runs_renders_in_time(page, workspace):
    root = step(None, 0, 100, name="desk", inputs={"messages": [USER]})
    runs = [root]
    for number in range(500):
        node = step(root, number / 10, number / 10 + 0.1, name="node")
        runs += [node, model(node, number / 10, number / 10 + 0.05, [SYSTEM, USER], FINAL)]
        runs += [step(node, number / 10, number / 10 + 0.05, name="f", run_type="tool")]
        runs += [step(node, number / 10, number / 10 + 0.05, name="chain")]
    ingest(workspace, *runs)
    url = trace_url(workspace, root)
    page.get(url)
    start = time.process_time()

    response = page.get(url)

    elapsed = time.process_time() - start
    assert len(response.context["transcript"].blocks) == 201
    assert elapsed < 4
