from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import json
import math
import pathlib
import uuid
from collections import deque
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langgraph.types import Interrupt, Send
from pydantic import BaseModel

from apps.graph_host import encoding


class Colour(enum.Enum):
    RED = "red"


class Point(NamedTuple):
    x: int
    y: int


class Model(BaseModel):
    name: str
    when: dt.datetime


@dataclasses.dataclass
class Box:
    items: set[int]


TIMESTAMP = dt.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=dt.UTC)
ID = uuid.UUID("01a20015-3670-72a7-a4f2-e23a7bdb5298")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (math.nan, None),
        ([math.inf, 1.5], [None, 1.5]),
        (TIMESTAMP, "2026-01-02T03:04:05.678901+00:00"),
        (dt.date(2026, 1, 2), "2026-01-02"),
        (dt.timedelta(minutes=1), 60.0),
        (ID, str(ID)),
        ({1}, [1]),
        (deque([1, 2]), [1, 2]),
        (b"\x00\xff", "AP8="),
        (decimal.Decimal("1.10"), "1.10"),
        (pathlib.PurePosixPath("/a/b"), "/a/b"),
        (Colour.RED, "red"),
        ({Colour.RED: 1, 2: "b", None: 3}, {"red": 1, "2": "b", "null": 3}),
        ((1, (2,)), [1, [2]]),
        (Point(1, 2), {"x": 1, "y": 2}),
        (
            Model(name="m", when=TIMESTAMP),
            {"name": "m", "when": "2026-01-02T03:04:05.678901+00:00"},
        ),
        (Box({1}), {"items": [1]}),
        (ValueError("no"), {"error": "ValueError", "message": "no"}),
        (2**70, 2**70),
        (
            {"deep": [2**70, {3}, TIMESTAMP]},
            {"deep": [2**70, [3], "2026-01-02T03:04:05.678901+00:00"]},
        ),
        ("a\ud800b", "a?b"),
        (Send("node", {"a": 1}), {"node": "node", "arg": {"a": 1}, "timeout": None}),
        (Interrupt("sure?", id="1f"), {"value": "sure?", "id": "1f", "response_schema": None}),
        (int, "builtins.int"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_type_of_state_value_is_encoded_as_json(value: Any, expected: Any):
    assert json.loads(encoding.dumps(value)) == expected


@pytest.mark.parametrize(
    "message",
    [
        HumanMessage("hi", id="1", name="ann"),
        AIMessage(
            "hi",
            tool_calls=[{"name": "f", "args": {"a": 1}, "id": "c"}],
            usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
        ),
        AIMessageChunk("to", id="1", tool_call_chunks=[]),
        ToolMessage("done", tool_call_id="c", artifact={"rows": [1]}),
        HumanMessage([{"type": "text", "text": "a"}], extra_field="kept"),
    ],
    ids=lambda message: type(message).__name__,
)
def test_messages_are_encoded_as_langchain_dumps_them(message):
    assert json.loads(encoding.dumps(message)) == json.loads(
        json.dumps(message.model_dump(), default=str)
    )


def test_a_recursive_object_is_encoded_as_unreadable():
    loop: list[Any] = []
    loop.append(loop)

    assert encoding.UNREADABLE in encoding.dumps(loop).decode()


def test_an_object_whose_repr_fails_is_encoded_as_unreadable():
    class Unreadable:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    assert json.loads(encoding.dumps({"a": Unreadable()}))["error"] == encoding.UNREADABLE


def test_an_interrupt_of_an_older_langgraph_has_an_id():
    older = SimpleNamespace(interrupt_id="i", value="ok?")

    assert encoding.interrupt_of_state(older) == {"id": "i", "value": "ok?"}
    assert encoding.interrupt_id(Interrupt("ok?", id="j")) == "j"
