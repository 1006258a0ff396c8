"""Template tags of the experiment pages."""

from __future__ import annotations

from django import template

from apps.core.python_literals import python_literal

register = template.Library()

_EVALUATE = """\
from langsmith import Client

client = Client(api_url="{api_url}")

def target(inputs: dict) -> dict:
    return {{"answer": my_agent(inputs["question"])}}

def correct(outputs: dict, reference_outputs: dict) -> bool:
    return outputs["answer"] == reference_outputs["answer"]

client.evaluate(
    target,
    data={dataset},
    evaluators=[correct],
    experiment_prefix="first",
)"""

_COMPARE = """\
from langsmith import Client
from langsmith.evaluation import evaluate_comparative

def shorter(runs: list, example) -> dict:
    lengths = [len(str(run.outputs)) for run in runs]
    return {{"key": "shorter", "scores": {{
        run.id: int(length == min(lengths)) for run, length in zip(runs, lengths)
    }}}}

evaluate_comparative(
    ("first experiment", "second experiment"),
    evaluators=[shorter],
    client=Client(api_url="{api_url}"),
)"""


@register.simple_tag
def evaluate_snippet(dataset_name: str, api_url: str) -> str:
    """Return Python code that runs an experiment on the dataset."""
    return _EVALUATE.format(api_url=api_url, dataset=python_literal(dataset_name))


@register.simple_tag
def compare_snippet(api_url: str) -> str:
    """Return Python code that ranks the runs of two experiments."""
    return _COMPARE.format(api_url=api_url)
