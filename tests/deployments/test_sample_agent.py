"""The sample agent's approval of mails, in the form of the human-in-the-loop middleware."""

import importlib
import sys

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from apps.deployments import sample

REQUEST = {"to": "ann@example.com", "text": "Hello, this is about the invoice."}
EDITED = {"to": "bob@example.com", "text": "Hello Bob"}


@pytest.fixture
def agent(monkeypatch):
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.syspath_prepend(str(sample.TEMPLATE / "src"))
    graph = importlib.import_module("concierge.graph").graph
    yield graph.copy({"checkpointer": InMemorySaver()})
    for name in [name for name in sys.modules if name.partition(".")[0] == "concierge"]:
        del sys.modules[name]


async def ask_for_mail(agent, config):
    mail = {"role": "user", "content": "Send a mail to ann@example.com about the invoice."}
    state = await agent.ainvoke({"messages": [mail]}, config)
    [question] = state["__interrupt__"]
    return question.value


async def test_interrupt_is_a_human_in_the_loop_request(agent):
    request = await ask_for_mail(agent, {"configurable": {"thread_id": "1"}})

    assert request == {
        "action_requests": [
            {
                "name": "send_mail",
                "args": REQUEST,
                "description": "A mail to ann@example.com needs approval.",
            }
        ],
        "review_configs": [
            {"action_name": "send_mail", "allowed_decisions": ["approve", "edit", "reject"]}
        ],
    }


@pytest.mark.parametrize(
    ("decision", "result", "count"),
    [
        ({"type": "approve"}, "Sent to ann@example.com: Hello, this is about the invoice.", 1),
        (
            {"type": "edit", "edited_action": {"name": "send_mail", "args": EDITED}},
            "Sent to bob@example.com, as edited: Hello Bob",
            1,
        ),
        ({"type": "reject", "message": "not today"}, "Not sent to ann@example.com: not today", 0),
        ({"type": "reject"}, "Not sent to ann@example.com.", 0),
    ],
)
async def test_each_decision_has_its_result(agent, decision, result, count):
    config = {"configurable": {"thread_id": "1"}}
    await ask_for_mail(agent, config)

    state = await agent.ainvoke(Command(resume={"decisions": [decision]}), config)

    assert state["messages"][-1].text == result
    assert state["mails_sent"] == count


async def test_an_answer_without_a_decision_asks_again(agent):
    config = {"configurable": {"thread_id": "1"}}
    await ask_for_mail(agent, config)

    state = await agent.ainvoke(Command(resume=True), config)
    [question] = state["__interrupt__"]
    assert question.value["action_requests"][0]["args"] == REQUEST

    state = await agent.ainvoke(Command(resume={"decisions": [{"type": "approve"}]}), config)
    assert state["messages"][-1].text.startswith("Sent to ann@example.com")
