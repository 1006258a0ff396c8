"""The state of the playground as its page shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from django.urls import reverse

from apps.datasets.models import Dataset, ExampleRevision
from apps.datasets.services.tags import list_splits, list_tags
from apps.deployments.models import Deployment
from apps.deployments.statuses import DeploymentStatus
from apps.experiment_jobs.evaluator_choice import list_choices
from apps.prompts.models import Repository, RepositoryType

MAX_CHOICES = 200
"""Prompts and datasets that the page offers."""
_SAMPLED_EXAMPLES = 50
_NO_ID = UUID(int=0)
_URL_NAMES = {
    "stream": "playground-stream",
    "tool_call": "playground-tool-call",
    "messages": "playground-messages",
    "draft": "playground-draft",
    "shares": "playground-shares",
    "prefill": "playground-prefill",
    "commits": "playground-commits",
    "experiments": "playground-experiments",
    "estimate": "playground-experiment-estimate",
    "rows": "playground-experiment-rows",
    "page": "playground",
}

ROLES = (
    ("system", "System"),
    ("human", "Human"),
    ("ai", "Assistant"),
    ("tool", "Tool"),
    ("placeholder", "Placeholder"),
)
FORMATS = (("f-string", "{name}"), ("mustache", "{{name}}"), ("none", "none"))


class Parameter(NamedTuple):
    """The field of a model parameter: a number with a step, a choice, or a text."""

    name: str
    label: str
    placeholder: str = "default"
    step: str = ""
    min: str = ""
    max: str = ""
    choices: tuple[str, ...] = ()


PARAMETERS = (
    Parameter("temperature", "Temperature", step="0.1", min="0", max="2"),
    Parameter("top_p", "Top p", step="0.05", min="0", max="1"),
    Parameter("max_tokens", "Longest reply, tokens", step="1", min="1"),
    Parameter("stop", "Stop at, separated by commas", placeholder="none"),
    Parameter("seed", "Seed", step="1"),
    Parameter("frequency_penalty", "Frequency penalty", step="0.1", min="-2", max="2"),
    Parameter("presence_penalty", "Presence penalty", step="0.1", min="-2", max="2"),
    Parameter("reasoning_effort", "Reasoning", choices=("minimal", "low", "medium", "high")),
    Parameter("thinking_budget", "Thinking, tokens", step="1", min="0"),
    Parameter("tool_choice", "Tool choice: auto, none, required or a name", placeholder="auto"),
)


@dataclass(frozen=True)
class MessageView:
    role: str
    text: str


@dataclass(frozen=True)
class ColumnView:
    """What the page shows of a column before its scripts run."""

    letter: str
    name: str
    provider: str
    model: str
    template_format: str
    messages: Sequence[MessageView]
    is_first: bool = False
    agent: str = ""
    """The slug of the agent that is called in place of the model."""


EMPTY_COLUMN = ColumnView("A", "Draft", "", "", "f-string", ())


def present_columns(state: Mapping[str, Any]) -> list[ColumnView]:
    return [
        _present_column(column, is_first=index == 0)
        for index, column in enumerate(state["columns"])
    ]


def _present_column(column: Mapping[str, Any], *, is_first: bool) -> ColumnView:
    setting = column["setting"]
    # The server leaves out what is empty.
    prompt, model = setting.get("prompt"), setting.get("model", {})
    name = f"{prompt['repo']} · {prompt['commit'][:8]}" if prompt else setting.get("name")
    return ColumnView(
        letter=column["letter"],
        name=name or "Draft",
        provider=model.get("provider", ""),
        model=model.get("model", ""),
        template_format=setting.get("template_format", "f-string"),
        messages=[
            MessageView(message["role"], _text_of(message.get("content", "")))
            for message in setting.get("messages", [])
        ],
        is_first=is_first,
        agent=(setting.get("agent") or {}).get("slug", ""),
    )


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "".join(str(block.get("text", "")) for block in blocks if block.get("type") == "text")


def present_providers(catalogue: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the providers with the price of each model as text, such as `$0.40 / $1.60`."""
    return [
        {
            **provider,
            "models": [
                {"id": model["id"], "price": _price_text(model)} for model in provider["models"]
            ],
        }
        for provider in catalogue["providers"]
    ]


def _price_text(model: Mapping[str, Any]) -> str:
    prices = model.get("input_price"), model.get("output_price")
    if None in prices:
        return ""
    return " / ".join(f"${price:.2f}" for price in prices)


def complete_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state with what is left out of it because it is empty."""
    return {"variables": {}, "dataset": None, "view": {}, **state}


def empty_state(catalogue: Mapping[str, Any]) -> dict[str, Any]:
    """Return one column with a model whose provider has a key, if there is one."""
    providers = [item for item in catalogue["providers"] if item["models"]]
    ready = [item for item in providers if item["has_key"]] or providers
    provider, model = ("", "") if not ready else (ready[0]["id"], ready[0]["models"][0]["id"])
    setting = {
        "name": "Draft",
        "prompt": None,
        "template_format": "f-string",
        "messages": [{"role": "system", "content": ""}, {"role": "human", "content": ""}],
        "tools": [],
        "response_schema": None,
        "model": {"provider": provider, "model": model},
    }
    return {
        "columns": [{"letter": "A", "setting": setting}],
        "variables": {},
        "dataset": None,
        "view": {},
    }


def list_urls(workspace_id: UUID) -> dict[str, str]:
    """Return the addresses of the routes; capital words such as `JOB` stand for ids."""
    urls = {name: reverse(url_name, args=[workspace_id]) for name, url_name in _URL_NAMES.items()}
    cancel = reverse("playground-experiment-cancel", args=[workspace_id, _NO_ID])
    dataset = reverse("playground-dataset", args=[workspace_id, _NO_ID])
    prompt_diff = reverse("prompt-diff", args=[workspace_id, "REPO", "COMMIT"])
    run = reverse("trace-redirect", args=[workspace_id, _NO_ID])
    return {
        **urls,
        "prompt_diff": prompt_diff,
        "run": run.replace(str(_NO_ID), "RUN"),
        "job": cancel.removesuffix("/cancel").replace(str(_NO_ID), "JOB"),
        "dataset": dataset.replace(str(_NO_ID), "DATASET"),
    }


def comparison_url(workspace_id: UUID) -> str:
    """Return the address of a comparison of experiments; `DATASET` stands for the dataset's id."""
    url = reverse("dataset-experiments-compare", args=[workspace_id, _NO_ID])
    return url.replace(str(_NO_ID), "DATASET")


def list_prompts(workspace_id: UUID) -> list[dict[str, str | None]]:
    """Return the prompts that a column can be committed to, with the hash of their head."""
    rows = Repository.objects.for_workspace(workspace_id).filter(
        type=RepositoryType.PROMPT, is_archived=False
    )
    values = rows.order_by("-updated_at").values_list("handle", "head__commit_hash")
    return [{"repo": handle, "head": commit_hash} for handle, commit_hash in values[:MAX_CHOICES]]


def list_agents(workspace_id: UUID) -> list[dict[str, str]]:
    """Return the deployed agents that a member can call, by name."""
    rows = Deployment.objects.for_workspace(workspace_id).present()
    rows = rows.exclude(active_revision=None).exclude(status=DeploymentStatus.STOPPED)
    rows = rows.order_by("name")
    return [{"slug": row.slug, "name": row.name} for row in rows[:MAX_CHOICES]]


def list_datasets(workspace_id: UUID) -> list[Dataset]:
    rows = Dataset.objects.for_workspace(workspace_id).present()
    return list(rows.order_by("-updated_at")[:MAX_CHOICES])


def present_dataset(dataset: Dataset) -> dict[str, Any]:
    """Return the versions, splits, input fields and enabled evaluators of the dataset."""
    revisions = ExampleRevision.objects.for_workspace(dataset.workspace_id).current()
    inputs = revisions.filter(dataset=dataset).values_list("inputs", flat=True)[:_SAMPLED_EXAMPLES]
    fields = dict.fromkeys(key for value in inputs if isinstance(value, dict) for key in value)
    return {
        "name": dataset.name,
        "examples": dataset.example_count,
        "versions": [tag.name for tag in list_tags(dataset)][:MAX_CHOICES],
        "splits": list_splits(dataset, None),
        "fields": list(fields)[:MAX_CHOICES],
        "evaluators": [
            {"id": choice.rule_id, "name": choice.name} for choice in list_choices(dataset)
        ],
    }
