import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.core.json import Fragment, dumps, loads, storable


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
