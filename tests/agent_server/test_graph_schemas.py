"""Schemas of graphs as those of tools."""

from __future__ import annotations

import pytest
from jsonschema import Draft202012Validator
from langgraph.graph import MessagesState, StateGraph
from typing_extensions import TypedDict

from apps.agent_server.services.graph_schemas import build, find_problem
from apps.graph_host.describe import schemas as describe


class Report(TypedDict):
    topic: str
    pages: int | None
    sections: dict[str, list[str]]


def graph_schemas(state: type) -> dict:
    builder = StateGraph(state)
    builder.add_node("work", lambda _: {})
    builder.set_entry_point("work")
    return describe(builder.compile())


def test_messages_may_be_a_text_or_a_list_and_their_definitions_are_left_out():
    schemas = build(graph_schemas(MessagesState))

    assert schemas.has_messages
    assert "$defs" not in schemas.input_schema
    for messages in ("hello", [{"role": "user", "content": "hello"}], [{"content": ["a"]}]):
        Draft202012Validator(schemas.input_schema).validate({"messages": messages})
    assert not Draft202012Validator(schemas.input_schema).is_valid({"messages": 7})


def test_a_text_becomes_a_user_message():
    schemas = build(graph_schemas(MessagesState))

    assert schemas.to_input({"messages": "hello"}) == {
        "messages": [{"role": "user", "content": "hello"}]
    }
    assert schemas.to_input({"messages": [{"content": "a"}]}) == {"messages": [{"content": "a"}]}


def test_a_conversation_requires_its_messages_alone():
    class State(MessagesState):
        mails_sent: int

    schemas = build(graph_schemas(State))

    assert schemas.input_schema["required"] == ["messages"]
    assert schemas.describe_problem({"messages": "hello"}) is None
    assert schemas.describe_problem({"mails_sent": 1}) == "`messages` is required."


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"topic": "tea", "pages": 3, "sections": {}}, None),
        ({"topic": "tea", "pages": None, "sections": {}, "more": 1}, None),
        ({"pages": 3, "sections": {}}, "`topic` is required."),
        ({"topic": 1, "pages": 3, "sections": {}}, "`topic` must be of type string, not integer."),
        (
            {"topic": "tea", "pages": True, "sections": {}},
            "`pages` must be of type integer or null, not boolean.",
        ),
        (
            {"topic": "tea", "pages": 1, "sections": []},
            "`sections` must be of type object, not array.",
        ),
    ],
)
def test_arguments_are_checked_for_required_names_and_types(arguments, problem):
    assert build(graph_schemas(Report)).describe_problem(arguments) == problem


def test_integers_of_clients_without_integers_are_converted():
    schemas = build(graph_schemas(Report))

    converted = schemas.to_input({"topic": "tea", "pages": 3.0, "sections": {"a": 1.0}})

    assert repr(converted) == repr({"topic": "tea", "pages": 3, "sections": {"a": 1.0}})


def test_an_output_schema_promises_no_field_and_allows_null():
    schema = build(graph_schemas(Report)).output_schema

    assert schema["properties"]["topic"]["type"] == ["null", "string"]
    assert "required" not in schema
    assert find_problem(schema, {"topic": None}) is None
    assert find_problem(schema, {"topic": 3}) == (
        "`topic` must be of type null or string, not integer."
    )
    Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("schema", [{"type": "string"}, {"anyOf": [{"type": "object"}]}])
def test_an_input_that_is_no_object_is_a_field_of_one(schema):
    schemas = build({"input_schema": schema, "output_schema": schema})

    assert schemas.input_schema["properties"] == {"input": schema}
    assert schemas.input_schema["required"] == ["input"]
    assert schemas.to_input({"input": "hello"}) == "hello"
    assert schemas.is_output_wrapped


def test_an_object_with_further_rules_stays_one_with_all_of_them():
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": {"$anchor": "a", "type": "object"}},
        "properties": {"phone": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
        "allOf": [{"anyOf": [{"required": ["phone"]}]}],
        "if": {"required": ["phone"]},
        "then": {"required": ["address"]},
        "additionalProperties": False,
    }

    schemas = build({"input_schema": schema})

    assert (schemas.input_schema, schemas.is_input_wrapped) == (schema, False)


def test_a_reference_at_the_root_is_followed():
    definition = {"type": "object", "properties": {"a": {"$ref": "#/$defs/B"}}}
    schema = {"$ref": "#/$defs/A", "$defs": {"A": definition, "B": {}, "C": {}}}

    schemas = build({"input_schema": schema})

    assert schemas.input_schema == {**definition, "$defs": {"B": {}}}


@pytest.mark.parametrize(
    "schema",
    [
        None,
        {},
        [],
        {"properties": {"a": {"$ref": "https://example.com/schema"}}},
        {"properties": {"a": {"$ref": "#/$defs/Missing"}}},
        {"$ref": "#/$defs/A", "$defs": []},
    ],
)
def test_an_unusable_schema_is_an_open_object(schema):
    schemas = build({"input_schema": schema, "output_schema": schema})

    assert schemas.input_schema == {"type": "object"}
    assert schemas.output_schema is None
    assert schemas.describe_problem({"anything": 1}) is None


def test_recursive_definitions_end():
    schema = {
        "type": "object",
        "properties": {"tree": {"$ref": "#/$defs/Tree"}},
        "$defs": {"Tree": {"anyOf": [{"$ref": "#/$defs/Tree"}, {"type": "null"}]}},
    }

    assert build({"input_schema": schema}).describe_problem({"tree": 1}) is None
