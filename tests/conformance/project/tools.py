"""Graphs that offer what the official suites ask of a server, as far as a graph can.

The names in langgraph.json are those of the suites' tools.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from typing import Any

import scenarios
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict


class Text(TypedDict, total=False):
    message: str
    prompt: str
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


# Contents of results

PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)
WAV = base64.b64encode(b"RIFF\x24\0\0\0WAVE")
JSON_FILE = {
    "type": "file",
    "base64": base64.b64encode(b'{"test": "data", "value": 123}').decode(),
    "mime_type": "application/json",
    "filename": "data.json",
}
IMAGE = {"type": "image", "base64": PNG, "mime_type": "image/png"}


async def log(_: Text) -> Text:
    write = get_stream_writer()
    for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        write({"level": "info", "data": text})
        await asyncio.sleep(0.05)
    return {"text": "Logged"}


logging_steps = one_step(log)


class Said(MessagesState, total=False):
    message: str


def say(*blocks: dict[str, Any]) -> Any:
    """A graph that says this."""
    builder = StateGraph(Said, input_schema=Text)
    builder.add_node("say", lambda _: {"messages": [AIMessage(content=list(blocks))]})
    builder.add_edge(START, "say")
    builder.add_edge("say", END)
    return builder.compile()


image_content = say(IMAGE)
audio_content = say({"type": "audio", "base64": WAV.decode(), "mime_type": "audio/wav"})
embedded_resource = say(JSON_FILE)
mixed_content = say({"type": "text", "text": "Multiple content types test:"}, IMAGE, JSON_FILE)


# Prompts and resources


def prompt(function: Callable[..., Any], arguments: Any = Text) -> Any:
    """A graph whose messages are a prompt."""
    builder = StateGraph(Said, input_schema=arguments)
    builder.add_node("write", function)
    builder.add_edge(START, "write")
    builder.add_edge("write", END)
    return builder.compile()


class TwoArguments(TypedDict):
    arg1: str
    arg2: str


class ResourceArgument(TypedDict):
    resourceUri: str


def write_with_arguments(state: TwoArguments) -> Any:
    text = f"Prompt with arguments: arg1='{state['arg1']}', arg2='{state['arg2']}'"
    return {"messages": [HumanMessage(text)]}


def write_with_resource(state: ResourceArgument) -> Any:
    file = {
        "type": "file",
        "base64": base64.b64encode(b"Embedded resource content for testing.").decode(),
        "mime_type": "text/plain",
        "filename": state["resourceUri"],
    }
    text = {"type": "text", "text": "Please process the embedded resource above."}
    return {"messages": [HumanMessage(content=[file, text])]}


def write_with_image(_: Text) -> Any:
    text = {"type": "text", "text": "Please analyze the image above."}
    return {"messages": [HumanMessage(content=[IMAGE, text])]}


def ask_for_context(_: Text) -> Any:
    question = elicit("What context should the prompt use?", context="string")
    answer = interrupt({"inputRequests": {"user_context": question}})
    return {"messages": [HumanMessage(f"Use this context: {answer}")]}


class Page(TypedDict, total=False):
    id: str
    templateTest: bool
    data: str


def read_page(state: Page) -> Page:
    return {"templateTest": True, "data": f"Data for ID: {state['id']}"}


simple_prompt = prompt(
    lambda _: {"messages": [HumanMessage("This is a simple prompt for testing.")]}
)
prompt_with_arguments = prompt(write_with_arguments, TwoArguments)
prompt_with_resource = prompt(write_with_resource, ResourceArgument)
prompt_with_image = prompt(write_with_image)
prompt_that_asks = prompt(ask_for_context)
static_text = say({"type": "text", "text": "This is the content of the static text resource."})
static_binary = say(IMAGE)
template_data = one_step(read_page, Page)


# Questions with names


def elicit(message: str, **fields: str) -> dict[str, Any]:
    properties = {name: {"type": kind} for name, kind in fields.items()}
    schema = {"type": "object", "properties": properties, "required": list(fields)}
    params = {"message": message, "requestedSchema": schema}
    return {"method": "elicitation/create", "params": params}


def sample(text: str, limit: int = 100) -> dict[str, Any]:
    messages = [{"role": "user", "content": {"type": "text", "text": text}}]
    params = {"messages": messages, "maxTokens": limit}
    return {"method": "sampling/createMessage", "params": params}


def require(**requests: dict[str, Any]) -> Any:
    """A graph that makes these requests to its client and returns the answers."""
    return ask({"inputRequests": requests})


def ask_twice(_: Text) -> Text:
    name = interrupt({"inputRequests": {"step1": elicit("What is your name?", name="string")}})
    color = interrupt({"inputRequests": {"step2": elicit("Which color?", color="string")}})
    return {"text": f"{name} {color}"}


def ask_model_of_client(state: Text) -> Text:
    answer = interrupt({"inputRequests": {"answer": sample(state.get("prompt", "Say hello"))}})
    return {"text": str(answer["answer"])}


NAME = elicit("What is your name?", name="string")
ROOTS = {"method": "roots/list", "params": {}}
sampling = one_step(ask_model_of_client)
ask_name = require(user_name=NAME)
ask_model = require(capital_question=sample("What is the capital of France?"))
ask_roots = require(client_roots=ROOTS)
ask_all = require(user_name=NAME, greeting=sample("Generate a greeting", 50), client_roots=ROOTS)
ask_name_or_model = require(user_name=NAME, greeting=sample("Generate a greeting"))
confirm = require(confirm=elicit("Please confirm", ok="boolean"))
two_rounds = one_step(ask_twice)


# Tasks


class Work(Text, total=False):
    name: str
    seconds: float
    label: str
    filename: str


LONG = 1.5
"""Seconds after which a call is a task."""


async def work(state: Work) -> Work:
    await asyncio.sleep(state.get("seconds", LONG))
    return {"text": f"{state.get('label', 'work')} is done"}


async def fail_late(_: Work) -> Work:
    await asyncio.sleep(LONG)
    raise ValueError("The job has failed")


async def ask_late(state: Work) -> Work:
    await asyncio.sleep(LONG)
    question = elicit(f"Delete {state.get('filename')}?", confirm="boolean")
    return {"text": str(interrupt({"inputRequests": {"confirm": question}}))}


async def ask_too_much(_: Work) -> Work:
    await asyncio.sleep(LONG)
    return {"text": str(interrupt({"inputRequests": {"roots": ROOTS}}))}


async def ask_before_work(_: Work) -> Work:
    answer = interrupt({"inputRequests": {"user_name": NAME}})
    await asyncio.sleep(LONG)
    return {"text": str(answer)}


def wait_for_two() -> Any:
    builder = StateGraph(Work)
    builder.add_node("wait", work)
    builder.add_edge(START, "wait")
    for name in ("first", "second"):
        builder.add_node(name, lambda _: interrupt({"inputRequests": {"name": NAME}}) and {})
        builder.add_edge("wait", name)
        builder.add_edge(name, END)
    return builder.compile()


greet = one_step(lambda state: {"text": f"Hello, {state.get('name')}!"}, Work)
slow_compute = one_step(work, Work)
failing_job = one_step(fail_late, Work)
confirm_delete = one_step(ask_late, Work)
protocol_error_job = one_step(ask_too_much, Work)
ask_then_work = one_step(ask_before_work, Work)
multi_input = wait_for_two()


# Schemas


class Region(BaseModel):
    region: str = Field("", json_schema_extra={"x-mcp-header": "Region"})


class Contact(BaseModel):
    """An input whose schema is written by hand, with many keywords of JSON Schema 2020-12."""

    model_config = ConfigDict(extra="forbid")
    name: str = ""
    address: dict[str, str] = {}
    contactMethod: str = ""  # noqa: N815 - the name in the suite's schema
    phone: str = ""
    email: str = ""

    @classmethod
    def model_json_schema(cls, *_: Any, **__: Any) -> dict[str, Any]:
        text = {"type": "string"}
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "$defs": {
                "address": {
                    "$anchor": "addressDef",
                    "type": "object",
                    "properties": {"street": text, "city": text},
                }
            },
            "properties": {
                "name": text,
                "address": {"$ref": "#/$defs/address"},
                "contactMethod": choice("phone", "email"),
                "phone": text,
                "email": text,
            },
            "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
            "if": {
                "properties": {"contactMethod": {"const": "phone"}},
                "required": ["contactMethod"],
            },
            "then": {"required": ["phone"]},
            "else": {"required": ["email"]},
            "additionalProperties": False,
        }


def with_input(model: type[BaseModel]) -> Any:
    builder = StateGraph(Text, input_schema=model)
    builder.add_node("say", lambda _: {"text": "done"})
    builder.add_edge(START, "say")
    builder.add_edge("say", END)
    return builder.compile()


with_header = with_input(Region)
with_schema = with_input(Contact)


_builder = StateGraph(Text)
for _name in ("first", "second", "third"):
    _builder.add_node(_name, lambda _: {"text": "done"})
_builder.add_edge(START, "first")
_builder.add_edge("first", "second")
_builder.add_edge("second", "third")
_builder.add_edge("third", END)
three_steps = _builder.compile()
