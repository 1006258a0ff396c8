import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.core.json import (
    MAX_DEPTH,
    Fragment,
    dumps,
    is_too_deep,
    loads,
    storable,
    storable_value,
)


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        (rb'"a\u0000b"', rb'"a\ufffdb"'),
        (rb'"\u0000\u0000"', rb'"\ufffd\ufffd"'),
        (rb'"\\u0000"', rb'"\\u0000"'),
        (rb'"\\\u0000"', rb'"\\\ufffd"'),
        (b'"plain"', b'"plain"'),
    ],
)
def test_storable_replaces_only_an_unescaped_nul(text, stored):
    assert storable(text) == stored


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_storable_changes_only_nuls(value):
    expected = json.loads(json.dumps(value).replace("\\u0000", "\\u0000"))

    stored = loads(storable(json.dumps(value).encode()))

    assert "\x00" not in json.dumps(stored, ensure_ascii=False)
    assert stored == _without_nuls(expected)


def _without_nuls(value):
    if isinstance(value, str):
        return value.replace("\x00", "\ufffd")
    if isinstance(value, list):
        return [_without_nuls(inner) for inner in value]
    return {_without_nuls(key): _without_nuls(inner) for key, inner in value.items()}


def test_fragment_is_embedded_unchanged():
    assert dumps({"a": Fragment(b'{"b":1}')}) == b'{"a":{"b":1}}'


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**20, 10**308])
def test_integers_of_any_size_are_encoded(number):
    text = dumps({"a": [{"b": number}, Fragment(b"[1]")], number: (True, 2**64 - 1)})

    assert json.loads(text) == {
        "a": [{"b": number}, [1]],
        str(number): [True, 2**64 - 1],
    }


def test_value_without_json_form_raises():
    with pytest.raises(TypeError):
        dumps({"a": "\ud800"})


@pytest.mark.parametrize("depth", [300, 900, 5000])
def test_deep_nesting_around_a_wide_integer_raises_the_error_of_the_encoder(depth):
    value = 10**25
    for _ in range(depth):
        value = [value]

    with pytest.raises(TypeError):
        dumps(value)


@pytest.mark.parametrize(("levels", "expected"), [(MAX_DEPTH, False), (MAX_DEPTH + 1, True)])
@pytest.mark.parametrize("inner", ["1", "10000000000000000000000000"])
def test_depth_of_json_from_clients(levels, expected, inner):
    text = b"[" * levels + inner.encode() + b"]" * levels
    value = json.loads(text)

    assert is_too_deep(value, text) is expected
    assert is_too_deep(value) is expected


def test_text_with_few_brackets_is_not_too_deep():
    assert not is_too_deep(None, b'{"a": [1, 2]}')


@pytest.mark.parametrize("value", [int("9" * 4000), json.loads("[" * 201 + "]" * 201)])
def test_values_that_jsonb_would_refuse(value):
    with pytest.raises(ValueError, match=r"nested deeper|infinity"):
        storable_value({"a": value})


def test_storable_value_replaces_nul_in_keys_and_values():
    assert storable_value({"a\0": ["\0", float("nan")]}) == {"a\ufffd": ["\ufffd", None]}
