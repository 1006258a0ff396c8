from __future__ import annotations

import ast

from hypothesis import given
from hypothesis import strategies as st

from apps.core.python_literals import python_literal

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda items: st.lists(items, max_size=3) | st.dictionaries(st.text(), items, max_size=3),
)


def test_texts_have_double_quotes():
    value = {"messages": [{"role": "user", "content": 'Say "hi"'}], "stream": True, "top": None}

    assert python_literal(value) == (
        '{"messages": [{"role": "user", "content": "Say \\"hi\\""}], "stream": True, "top": None}'
    )


@given(JSON.filter(lambda value: "inf" not in repr(value)))
def test_python_reads_the_same_value(value):
    assert ast.literal_eval(python_literal(value)) == value
