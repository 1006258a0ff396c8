"""The examples table shows what a person would read of inputs and outputs."""

from __future__ import annotations

import json

import pytest

from apps.datasets.pages.example_list import PREVIEW_CHARACTERS, preview
from tests.tracing.messages.payloads import CONVERSATIONS, REPLY


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_preview_of_a_reply_of_each_format_is_its_text(name):
    _, outputs = CONVERSATIONS[name]

    assert preview(json.dumps(outputs)) == REPLY


def test_preview_of_fields_names_them_and_is_short():
    assert preview('{"question": "Why?"}') == "Why?"
    assert preview('{"a": 1, "b": [2]}') == "a: 1 · b: [2]"
    assert len(preview(json.dumps({"text": "long " * 500}))) == PREVIEW_CHARACTERS
