"""Variables of prompts are filled in as LangChain does it, from the given values only."""

from __future__ import annotations

import pytest
from langchain_core.prompts import ChatPromptTemplate

from apps.playground.errors import BadSetting, MissingVariables
from apps.playground.setting import Setting, convert
from apps.playground.templates import list_variables, render_messages
from tests.playground.conftest import setting


def parse(text: str, template_format: str = "f-string") -> Setting:
    message = {"role": "human", "content": text}
    return convert(setting(message, template_format=template_format), Setting)


@pytest.mark.parametrize(
    ("text", "template_format", "variables"),
    [
        ("Hello {name}", "f-string", {"name": "Ada"}),
        ("{{literal}} {name}", "f-string", {"name": "{other}"}),
        ("{n:>5}|{n!r}", "f-string", {"n": "ab"}),
        ("{{name}} and {name}", "mustache", {"name": "Ada"}),
        ("{{{name}}}", "mustache", {"name": "Ada & Bob"}),
        ("{{#items}}- {{.}}\n{{/items}}end", "mustache", {"items": ["a", "b"]}),
        ("{{#items}}{{name}} {{/items}}", "mustache", {"items": [{"name": "a"}, {"name": "b"}]}),
        ("{{^items}}none{{/items}}", "mustache", {"items": []}),
        ("{{person.name}}", "mustache", {"person": {"name": "Ada"}}),
        ("{{! a comment }}{{name}}", "mustache", {"name": "Ada"}),
    ],
)
def test_text_is_that_of_langchain(text, template_format, variables):
    prompt = ChatPromptTemplate.from_messages([("human", text)], template_format=template_format)
    expected = prompt.invoke(variables).to_messages()[0].content

    [message] = render_messages(parse(text, template_format), variables)

    assert message.text == expected


def test_texts_for_models_are_not_escaped():
    [message] = render_messages(parse("{{a}}", "mustache"), {"a": "<b> & 'c'"})

    assert message.text == "<b> & 'c'"


def test_values_that_are_no_text_are_json():
    [message] = render_messages(parse("{a} {b}"), {"a": {"x": [1]}, "b": 1.5})

    assert message.text == '{"x":[1]} 1.5'


def test_without_a_format_braces_are_text():
    [message] = render_messages(parse("{a} {{b}}", "none"), {})

    assert message.text == "{a} {{b}}"
    assert list_variables(parse("{a}", "none")) == []


@pytest.mark.parametrize(
    ("text", "template_format"),
    [
        ("{a.__class__}", "f-string"),
        ("{a[0]}", "f-string"),
        ("{", "f-string"),
        ("{}", "f-string"),
        ("{a:{b}}", "f-string"),
        ("{{#a}}", "mustache"),
        ("{{/a}}", "mustache"),
        ("{{> file}}", "mustache"),
        ("{{#a}}" * 30 + "{{/a}}" * 30, "mustache"),
    ],
)
def test_template_that_is_malformed_or_reaches_into_values_is_refused(text, template_format):
    with pytest.raises(BadSetting):
        render_messages(parse(text, template_format), {"a": "x", "b": "y"})


@pytest.mark.parametrize("text", ["{a:9999999999}", "{a:.99999f}", "{a:%}"])
def test_format_of_a_value_is_bounded(text):
    with pytest.raises(BadSetting):
        render_messages(parse(text), {"a": "x"})


def test_nested_sections_cannot_grow_without_bound():
    text = "{{#a}}" * 8 + "x" + "{{/a}}" * 8

    with pytest.raises(BadSetting):
        render_messages(parse(text, "mustache"), {"a": ["y"] * 20})


def test_missing_variables_are_named_once_and_in_order():
    with pytest.raises(MissingVariables) as raised:
        render_messages(parse("{b} {a} {b} {c}"), {"c": ""})

    assert [error["field"] for error in raised.value.errors] == ["b", "a"]


def test_placeholder_is_a_list_of_messages():
    place = {"role": "placeholder", "content": "history"}
    value = [{"role": "human", "content": "{no template}"}, {"role": "ai", "content": "Yes"}]

    messages = render_messages(convert(setting(place), Setting), {"history": value})

    assert [message.text for message in messages] == ["{no template}", "Yes"]


@pytest.mark.parametrize("value", ["text", [1], [{"role": "placeholder", "content": "history"}]])
def test_placeholder_takes_messages_only(value):
    place = {"role": "placeholder", "content": "history"}

    with pytest.raises(BadSetting):
        render_messages(convert(setting(place), Setting), {"history": value})
