"""Templates of a run's input."""

from __future__ import annotations

import pytest

from apps.experiment_jobs.errors import InputTooLarge, InvalidMapping
from apps.experiment_jobs.input_mapping import (
    MAX_MAPPING_BYTES,
    MissingInput,
    build_input,
    check_mapping,
)

INPUTS = {"question": "why?", "user": {"name": "ann", "age": 7}, "words": ["a", "b"]}


def test_inputs_without_a_mapping_stay_as_they_are():
    assert build_input(None, INPUTS) is INPUTS


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{question}}", "why?"),
        ("{{ user }}", {"name": "ann", "age": 7}),
        ("{{user.age}}", 7),
        ("{{words.1}}", "b"),
        ("{{user.name}} is {{user.age}}", "ann is 7"),
        ("all: {{words}}", 'all: ["a","b"]'),
        ("{question}", "{question}"),
        (3, 3),
    ],
)
def test_placeholders_are_replaced_by_values_of_the_example(template, expected):
    mapping = {"messages": [{"role": "user", "content": template}]}

    check_mapping(mapping)

    assert build_input(mapping, INPUTS) == {"messages": [{"role": "user", "content": expected}]}


@pytest.mark.parametrize(
    "path", ["answer", "user.email", "words.2", "words.x", "question.0", "words.99999999999"]
)
def test_a_field_that_the_example_lacks_is_missing(path):
    with pytest.raises(MissingInput, match=f"no `{path}`"):
        build_input({"a": f"{{{{{path}}}}}"}, INPUTS)


@pytest.mark.parametrize("mapping", [[], "text", {"a": "{{}}"}, {"a": ["{{b..c}}"]}])
def test_malformed_mappings_are_refused(mapping):
    with pytest.raises(InvalidMapping):
        check_mapping(mapping)


def test_deeply_nested_mappings_are_refused():
    mapping: dict[str, object] = {}
    for _ in range(30):
        mapping = {"a": mapping}

    with pytest.raises(InvalidMapping):
        check_mapping(mapping)


@pytest.mark.parametrize(
    "mapping",
    [
        {"a": "{{x}}" * 1000},
        {f"a{number}": "{{x}}" for number in range(1000)},
        [*["{{ x }}"] * 1000],
    ],
)
def test_a_value_is_not_inserted_until_the_memory_is_full(mapping):
    with pytest.raises(InputTooLarge):
        build_input({"m": mapping}, {"x": "y" * 100_000})


def test_large_mappings_are_refused():
    with pytest.raises(InvalidMapping, match=str(MAX_MAPPING_BYTES)):
        check_mapping({"a": "x" * MAX_MAPPING_BYTES})
