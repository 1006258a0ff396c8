"""Templates of prompts are texts of members: none may take long or fail the server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from apps.experiment_jobs.errors import InvalidMapping
from apps.experiment_jobs.input_mapping import check_mapping
from apps.playground.errors import BadSetting
from apps.playground.manifests import build_manifest
from apps.playground.setting import Setting, convert
from apps.playground.templates import (
    MAX_RENDERED_CHARACTERS,
    MAX_VARIABLES,
    list_variables,
    render_messages,
)
from apps.prompts.messages import find_variables
from tests.playground.conftest import setting

MAX_CPU_SECONDS = 3.0


def parse(*texts: str, template_format: str = "f-string") -> Setting:
    messages = [{"role": "human", "content": text} for text in texts]
    return convert(setting(*messages, template_format=template_format), Setting)


@pytest.fixture(autouse=True)
def bounded_time() -> Iterator[None]:
    start = time.process_time()
    yield
    assert time.process_time() - start < MAX_CPU_SECONDS


@pytest.mark.parametrize("piece", [" ", "a", "{", "{{", "{{ ", "{{a", "{{#", "}", "{{{ "])
def test_malformed_templates_are_read_in_linear_time(piece):
    text = "{{" + piece * 30_000

    for template_format in ("mustache", "f-string"):
        with suppress(ValueError):
            find_variables(text, template_format)
        with suppress(BadSetting):
            list_variables(parse(text, template_format=template_format))
    with suppress(InvalidMapping):
        check_mapping({"a": text})


BOMBS: list[tuple[str, list[str], dict[str, Any]]] = [
    ("f-string", ["{a}" * 50_000], {"a": "x" * 100_000}),
    ("f-string", ["{a}" * 50_000], {"a": ["x" * 100_000]}),
    ("f-string", ["{a:>999}" * 50_000], {"a": "x"}),
    ("f-string", ["{a!r:.0}" * 50_000], {"a": "x" * 100_000}),
    ("f-string", ["{a}" * 100] * 400, {"a": "x" * 10_000}),
    ("mustache", ["{{a}}" * 50_000], {"a": "x" * 100_000}),
    ("mustache", ["{{#a}}" * 19 + "{{/a}}" * 19], {"a": [1] * 10}),
    ("mustache", ["{{#a}}" * 7 + "{{/a}}" * 7] * 400, {"a": [1] * 6}),
    ("mustache", ["{{#a}}{{#a}}{{a.b.c" + ".d" * 10_000 + "}}{{/a}}{{/a}}"], {"a": [{}] * 1000}),
]


@pytest.mark.parametrize(("template_format", "texts", "variables"), BOMBS)
def test_small_templates_do_not_become_gigabytes(template_format, texts, variables):
    prompt = parse(*texts, template_format=template_format)

    with pytest.raises(BadSetting, match=str(MAX_RENDERED_CHARACTERS)):
        render_messages(prompt, variables)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{a:c}", 2**40),
        ("{a:c}", 0xD800),
        ("{a:c}", -1),
        ("{a:d}", 1.5),
        ("{a:>9999}", "x"),
        ("{a:{a}}", "x"),
        ("{a.__class__}", "x"),
        ("{a[0]}", "x"),
        ("{0}", "x"),
        ("{}", "x"),
        ("{a!x}", "x"),
    ],
)
def test_formats_that_do_not_fit_are_bad_requests(text, value):
    with pytest.raises(BadSetting):
        render_messages(parse(text), {"a": value})


@pytest.mark.parametrize("text", ["{{>a}}", "{{#a}}", "{{/a}}"])
def test_malformed_templates_cannot_be_committed(text):
    with pytest.raises(BadSetting):
        build_manifest(parse(text, template_format="mustache"))


def test_a_prompt_has_a_limited_number_of_variables():
    text = "".join(f"{{a{number}}}" for number in range(MAX_VARIABLES + 1))

    with pytest.raises(BadSetting, match=str(MAX_VARIABLES)):
        list_variables(parse(text))
