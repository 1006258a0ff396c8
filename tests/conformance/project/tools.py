"""Graphs that offer what the official suites ask of a server, as far as a graph can.

The names in langgraph.json are those of the suites' tools.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import scenarios
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt
from typing_extensions import TypedDict


class Text(TypedDict, total=False):
    message: str
    text: str


def one_step(function: Callable[..., Any], state: Any = Text) -> Any:
    builder = StateGraph(state)
    builder.add_node("work", function)
    builder.add_edge(START, "work")
    builder.add_edge("work", END)
    return builder.compile()


def fail(_: Text) -> Text:
    raise ValueError("This tool intentionally returns an error for testing")


def ask(question: dict[str, Any]) -> Any:
    """A graph that asks this and returns the answer."""
    return one_step(lambda _: {"text": str(interrupt(question))})


class KitState(MessagesState, total=False):
    structured_response: dict[str, Any]


async def play_scenario(state: KitState) -> Any:
    """Behave as the A2A kit asks for in the id of its message."""
    scenario = scenarios.find(str(state["messages"][-1].id))
    await asyncio.sleep(scenario.seconds)
    if scenario.outcome == "input-required":
        while str(interrupt("What next?")).startswith(scenarios.ASKS_AGAIN):
            pass
        return {"messages": [AIMessage("Hello from TCK")]}
    texts = [part["text"] for part in scenario.parts if "text" in part]
    if texts:
        # A chat model, so that the text is streamed.
        model = GenericFakeChatModel(messages=iter([AIMessage("".join(texts))]))
        return {"messages": [await model.ainvoke(state["messages"])]}
    blocks = [to_block(part) for part in scenario.parts if "data" not in part]
    data = [part["data"] for part in scenario.parts if "data" in part]
    response = {"structured_response": data[0]} if data else {}
    return {"messages": [AIMessage(content=blocks)], **response}


def to_block(part: dict[str, Any]) -> dict[str, Any]:
    content = {"url": part["url"]} if "url" in part else {"base64": part["raw"]}
    file = {"mime_type": part["mediaType"], "filename": part["filename"]}
    return {"type": "file", **content, **file}


def choice(*values: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(values)}


def titled(*values: tuple[str, str]) -> list[dict[str, str]]:
    return [{"const": value, "title": title} for value, title in values]


simple_text = one_step(lambda _: {"text": "This is a simple text response for testing."})
error_handling = one_step(fail)
elicitation = one_step(
    lambda state: {"text": str(interrupt({"message": state.get("message", "Say something")}))}
)
defaults = ask(
    {
        "message": "Please review and update the form fields with defaults",
        "requestedSchema": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "User name", "default": "John Doe"},
                "age": {"type": "integer", "description": "User age", "default": 30},
                "score": {"type": "number", "description": "User score", "default": 95.5},
                "status": {**choice("active", "inactive", "pending"), "default": "active"},
                "verified": {"type": "boolean", "description": "Verified", "default": True},
            },
            "required": [],
        },
    }
)
_OPTIONS = (("value1", "First Option"), ("value2", "Second Option"), ("value3", "Third Option"))
_NAMES = ("option1", "option2", "option3")
enums = ask(
    {
        "message": "Please select options from the enum fields",
        "requestedSchema": {
            "type": "object",
            "properties": {
                "untitledSingle": choice(*_NAMES),
                "titledSingle": {"type": "string", "oneOf": titled(*_OPTIONS)},
                "legacyEnum": {
                    **choice("opt1", "opt2", "opt3"),
                    "enumNames": ["Option One", "Option Two", "Option Three"],
                },
                "untitledMulti": {"type": "array", "items": choice(*_NAMES)},
                "titledMulti": {"type": "array", "items": {"anyOf": titled(*_OPTIONS)}},
            },
            "required": [],
        },
    }
)
kit = one_step(play_scenario, KitState)

_builder = StateGraph(Text)
for _name in ("first", "second", "third"):
    _builder.add_node(_name, lambda _: {"text": "done"})
_builder.add_edge(START, "first")
_builder.add_edge("first", "second")
_builder.add_edge("second", "third")
_builder.add_edge("third", END)
three_steps = _builder.compile()
