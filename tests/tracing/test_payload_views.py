"""Pages show a run's input and output as messages, offered tools and other fields."""

from __future__ import annotations

import html
import json
import re

import pytest

from apps.tracing.offered_tools import parse_tools
from tests.factories.tracing import ingest, read_run, stored_run, wire_run

pytestmark = pytest.mark.django_db

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION = {"name": "weather", "description": "Look up the weather.", "parameters": SCHEMA}
HELLO = {"messages": [{"role": "user", "content": "Is it raining?"}]}


def run_view(page, workspace, run_id):
    project_id = read_run(workspace, run_id).row.project_id
    return page.get(f"/o/{workspace.pk}/projects/p/{project_id}/r/{run_id}")


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "function", "function": FUNCTION},
        FUNCTION,
        {"name": "weather", "description": "Look up the weather.", "input_schema": SCHEMA},
        json.dumps(FUNCTION),
    ],
)
def test_offered_tool_is_parsed_in_each_provider_form(tool):
    [parsed] = parse_tools({"tools": [tool]})

    assert (parsed.name, parsed.description) == ("weather", "Look up the weather.")
    assert '"city"' in parsed.schema


def test_malformed_tools_are_skipped():
    assert parse_tools({"tools": [1, None, []]}) == []
    assert parse_tools({"tools": {"a": 1}}) == []
    assert [tool.name for tool in parse_tools({"tools": [{"type": "web_search"}]})] == [
        "web_search"
    ]


def test_model_run_shows_offered_tools_with_schemas_and_the_other_fields(page, workspace):
    inputs = HELLO | {
        "system": "Answer briefly.",
        "tools": [{"type": "function", "function": FUNCTION}],
        "tool_choice": "auto",
    }
    run_id = stored_run(workspace, run_type="llm", inputs=inputs)

    response = run_view(page, workspace, run_id)
    view = response.context["run"].inputs

    assert [message.role for message in view.messages] == ["system", "human"]
    assert [tool.name for tool in view.tools] == ["weather"]
    assert view.other_fields == [("tool_choice", "auto")]
    text = response.content.decode()
    assert "Offered tools" in text
    assert "Schema of weather" in text
    assert "&quot;city&quot;" in text


def test_model_run_shows_the_tools_of_its_invocation_parameters(page, workspace):
    extra = {"invocation_params": {"tools": [{"type": "function", "function": FUNCTION}]}}
    run_id = stored_run(workspace, run_type="llm", inputs=HELLO, extra=extra)

    view = run_view(page, workspace, run_id).context["run"]

    assert [tool.name for tool in view.inputs.tools] == ["weather"]
    assert view.inputs.other_fields == []
    assert list(view.outputs.tools) == []


def test_output_fields_beside_the_choices_are_shown(page, workspace):
    message = {"role": "assistant", "content": "No."}
    outputs = {"choices": [{"message": message}], "usage": {"total_tokens": 7}}
    run_id = stored_run(workspace, run_type="llm", inputs=HELLO, outputs=outputs)

    view = run_view(page, workspace, run_id).context["run"].outputs

    assert [message.role for message in view.messages] == ["ai"]
    assert view.other_fields == [("usage", '{\n  "total_tokens": 7\n}')]


def thread_turn(page, workspace, inputs, outputs):
    run = wire_run(inputs=inputs, outputs=outputs, extra={"metadata": {"thread_id": "t"}})
    ingest(workspace, run)
    project_id = read_run(workspace, run["id"]).row.project_id
    response = page.get(f"/o/{workspace.pk}/projects/p/{project_id}/thread?thread=t&view=turns")
    [turn] = response.context["thread"].turns
    return turn, response.content.decode()


def test_thread_shows_messages_nested_in_the_input(page, workspace):
    inputs = {"input": HELLO, "config": {"tier": "gold"}}

    turn, _ = thread_turn(page, workspace, inputs, {"answer": "No."})

    assert [message.role for message in turn.new_inputs] == ["human"]
    assert turn.inputs.other_fields == [("config", '{\n  "tier": "gold"\n}')]


def test_thread_shows_the_main_text_of_the_input_and_folds_other_fields(page, workspace):
    turn, text = thread_turn(
        page, workspace, {"question": "Is it raining?", "limit": 3}, {"answer": "No.", "n": 1}
    )

    assert (turn.inputs.text, turn.inputs.other_fields) == ("Is it raining?", [("limit", "3")])
    assert (turn.outputs.text, turn.outputs.other_fields) == ("No.", [("n", "1")])
    assert "{&quot;question&quot;" not in text


def test_thread_shows_an_input_without_a_text_by_field(page, workspace):
    turn, text = thread_turn(page, workspace, {"order": 7, "items": ["a"]}, {"done": True})

    assert turn.inputs.text is None
    assert turn.inputs.other_fields == [("order", "7"), ("items", '[\n  "a"\n]')]
    assert "{&quot;order&quot;" not in text


def test_long_conversation_folds_its_middle(page, workspace):
    inputs = {"messages": [{"role": "user", "content": f"message {n}"} for n in range(100)]}
    run_id = stored_run(workspace, run_type="llm", inputs=inputs)

    response = run_view(page, workspace, run_id)

    groups = response.context["run"].inputs.message_groups
    assert [len(group) for group in groups] == [2, 88, 10]
    assert "88 more messages" in response.content.decode()


@pytest.mark.parametrize("is_root", [True, False])
def test_metadata_value_links_to_the_runs_that_have_it(page, workspace, is_root):
    root = wire_run(name="root", extra={"metadata": {"tier": "gold", "n": 7}})
    child = wire_run(root, name="child", extra={"metadata": {"customer": 'a "b" & c'}})
    ingest(workspace, root, child, wire_run(name="other"))
    response = run_view(page, workspace, root["id"] if is_root else child["id"])
    links = re.findall(r'class="metadata-filter"\s+href="([^"]+)"', response.content.decode())

    names = {
        listed.row.name
        for link in links
        for listed in page.get(html.unescape(link)).context["list"].rows
    }

    assert "Filter by this value" in response.content.decode()
    assert names == {"root" if is_root else "child"}
