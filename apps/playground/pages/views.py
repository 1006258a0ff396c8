"""The playground page and the fields of the datasets that it runs over."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.http import HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from apps.core import errors
from apps.core.callers import Caller
from apps.datasets.services.datasets import get_dataset
from apps.organizations.permissions import Permission
from apps.playground.pages import presentation
from apps.playground.services import prefill
from apps.playground.services.catalogue import load_catalogue
from apps.playground.services.saved_columns import load_draft, load_share
from apps.web_ui.pages import PageRequest, workspace_page

_EXPERIMENT_PERMISSIONS = (
    Permission.EXPERIMENTS_WRITE,
    Permission.PROJECTS_WRITE,
    Permission.DATASETS_READ,
)
_STATE_KEYS = ("columns", "variables", "dataset", "view")


@dataclass(frozen=True)
class Opening:
    """What the page opens with."""

    state: dict[str, Any]
    recorded: list[dict[str, Any] | None] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    share: dict[str, Any] | None = None
    """The read-only link that was opened."""
    replaces_draft: bool = False
    """Whether the person has a draft that the first change replaces."""
    shows_draft: bool = False
    draft_saved_at: datetime | None = None


@require_GET
@workspace_page(Permission.PROMPTS_READ)
def playground(request: PageRequest) -> HttpResponse:
    """Show the run, prompt, example, agent or shared setting of the query; else the draft."""
    caller = request.caller
    catalogue = load_catalogue(caller)
    opening = _open(request, catalogue)
    state = presentation.complete_state(opening.state)
    may_write = caller.may(Permission.PROMPTS_WRITE)
    may_read_datasets = caller.may(Permission.DATASETS_READ)
    agents = presentation.list_agents(caller.workspace_id) if _may_call_agents(caller) else []
    config = {
        "urls": presentation.list_urls(caller.workspace_id),
        "catalogue": catalogue,
        "state": state,
        "recorded": opening.recorded,
        "owner": f"{request.user.pk} {caller.workspace_id}",
        "agents": agents,
        "is_read_only": opening.share is not None,
        "may_experiment": may_write and all(map(caller.may, _EXPERIMENT_PERMISSIONS)),
        "prompts": presentation.list_prompts(caller.workspace_id) if may_write else [],
    }
    if opening.shows_draft:
        config["draft_saved_at"] = opening.draft_saved_at
    context = {
        "config": config,
        "opening": opening,
        "columns": presentation.present_columns(state),
        "empty_column": presentation.EMPTY_COLUMN,
        "providers": presentation.present_providers(catalogue),
        "parameters": presentation.PARAMETERS,
        "roles": presentation.ROLES,
        "agents": agents,
        "formats": presentation.FORMATS,
        "datasets": presentation.list_datasets(caller.workspace_id) if may_read_datasets else [],
        "comparison_url": presentation.comparison_url(caller.workspace_id),
        "may_commit": may_write and opening.share is None,
        "may_run": catalogue["may_run"],
    }
    return render(request, "playground/playground.html", context)


def _may_call_agents(caller: Caller) -> bool:
    return caller.may(Permission.AGENTS_READ) and caller.may(Permission.AGENTS_RUN)


def _open(request: PageRequest, catalogue: dict[str, Any]) -> Opening:
    query, caller = request.GET, request.caller
    if share_id := query.get("share"):
        share = load_share(caller, _parse_id(share_id))
        return Opening(share["state"], share=share)
    saved = load_draft(caller, request.user.pk)
    draft = saved["state"]
    filled: dict[str, Any] | None = None
    if run_id := query.get("run"):
        filled = prefill.from_run(caller, _parse_id(run_id))
    elif repo := query.get("prompt"):
        filled = prefill.from_prompt(caller, repo[:200], query.get("commit", "latest")[:100])
    elif example_id := query.get("example"):
        filled = prefill.from_example(caller, _parse_id(example_id))
    elif slug := query.get("agent"):
        filled = prefill.from_agent(caller, slug[:80])
    if filled is None:
        return Opening(
            draft or presentation.empty_state(catalogue),
            shows_draft=True,
            draft_saved_at=saved["updated_at"],
        )
    return Opening(
        {key: filled[key] for key in _STATE_KEYS if key in filled},
        recorded=filled["recorded"],
        notices=filled["notices"],
        replaces_draft=draft is not None,
    )


def _parse_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise errors.NotFound from None


@require_GET
@workspace_page(Permission.PROMPTS_READ)
def dataset_fields(request: PageRequest, dataset_id: UUID) -> HttpResponse:
    """Return the versions, the splits and the input fields of the dataset as JSON."""
    request.caller.require(Permission.DATASETS_READ)
    dataset = get_dataset(request.caller.workspace_id, dataset_id)
    return JsonResponse(presentation.present_dataset(dataset))
