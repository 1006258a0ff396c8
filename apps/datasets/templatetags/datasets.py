"""Template tags of the dataset pages."""

from __future__ import annotations

from django import template

from apps.core.json import dumps_text

register = template.Library()

_CREATE_SNIPPET = """\
from langsmith import Client

client = Client(api_url="{base_url}/api/v1", api_key="<your key>")
dataset = client.create_dataset("support questions")
client.create_examples(
    dataset_id=dataset.id,
    examples=[
        {{
            "inputs": {{"question": "How do I reset my password?"}},
            "outputs": {{"answer": "Open Settings, then Security."}},
        }},
    ],
)"""


@register.simple_tag
def create_snippet(base_url: str) -> str:
    """Return a Python program that creates a dataset with an example."""
    return _CREATE_SNIPPET.format(base_url=base_url)


_EXAMPLES_SNIPPET = """\
from langsmith import Client

client = Client(api_url="{base_url}/api/v1", api_key="<your key>")
client.create_examples(
    dataset_name={name},
    examples=[
        {{"inputs": {{"question": "…"}}, "outputs": {{"answer": "…"}}, "split": "train"}},
    ],
)"""


@register.simple_tag
def examples_snippet(base_url: str, name: str) -> str:
    """Return a Python program that adds an example to the dataset."""
    return _EXAMPLES_SNIPPET.format(base_url=base_url, name=dumps_text(name))
