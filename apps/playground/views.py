"""The JSON and event streams that the playground's page reads, for the signed-in member."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from apps.core import errors as core_errors
from apps.core.http.loop_response import LoopResponse
from apps.core.json import dumps
from apps.experiment_jobs.services import jobs
from apps.organizations.permissions import Permission
from apps.playground.services import (
    catalogue,
    experiments,
    prefill,
    prompt_commits,
    saved_columns,
    streaming,
    tool_calls,
)
from apps.playground.services.experiments import ExperimentBody
from apps.playground.services.prompt_commits import CommitBody
from apps.playground.services.tool_calls import ToolCallBody
from apps.playground.setting import (
    MAX_COLUMNS,
    RenderBody,
    State,
    StreamBody,
    check_setting,
    decode,
)
from apps.playground.templates import render_messages
from apps.playground.wire import ShareBody
from apps.providers.adapters.openai import build_message
from apps.web_ui.pages import PageRequest, workspace_page

EVENT_STREAM = "text/event-stream; charset=utf-8"
STREAM_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def json_response(value: Any, status: int = 200) -> HttpResponse:
    headers = {"Cache-Control": "no-store"}
    return HttpResponse(dumps(value), "application/json", status=status, headers=headers)


@require_GET
@workspace_page(Permission.PROMPTS_READ)
def models(request: PageRequest) -> HttpResponse:
    """Return the catalogue of models with prices, and which keys exist."""
    return json_response(catalogue.load_catalogue(request.caller))


@require_POST
@workspace_page(Permission.PROMPTS_WRITE)
def stream(request: PageRequest) -> HttpResponseBase:
    """Run one column, and stream its reply."""
    column = streaming.prepare_column(request.caller, decode(request.body, StreamBody))
    return LoopResponse(
        streaming.stream_column(column), content_type=EVENT_STREAM, headers=STREAM_HEADERS
    )


@require_POST
@workspace_page(Permission.PROMPTS_READ)
def rendered(request: PageRequest) -> HttpResponse:
    """Fill the variables in; return the messages as agents and Chat Completions take them."""
    body = decode(request.body, RenderBody)
    check_setting(body.setting)
    messages = render_messages(body.setting, body.variables)
    return json_response({"messages": [build_message(message) for message in messages]})


@require_POST
@workspace_page(Permission.PROMPTS_WRITE)
def tool_call(request: PageRequest) -> HttpResponseBase:
    """Call the webhook of a tool, and return its result."""
    call = tool_calls.prepare_tool_call(request.caller, decode(request.body, ToolCallBody))
    return LoopResponse(tool_calls.call_tool(call), content_type="application/json")


@require_http_methods(["GET", "PUT", "DELETE"])
@workspace_page(Permission.PROMPTS_READ)
def draft(request: PageRequest) -> HttpResponse:
    """Return, replace or delete the member's own draft."""
    workspace_id, user_id = request.caller.workspace_id, request.user.pk
    if request.method != "GET":
        request.caller.require(Permission.PROMPTS_WRITE)
    if request.method == "PUT":
        state = decode(request.body, State)
        saved = saved_columns.save_draft(workspace_id=workspace_id, user_id=user_id, state=state)
        return json_response({"updated_at": saved.updated_at})
    if request.method == "DELETE":
        saved_columns.delete_draft(workspace_id=workspace_id, user_id=user_id)
        return HttpResponse(status=204)
    return json_response(saved_columns.load_draft(request.caller, user_id))


@require_POST
@workspace_page(Permission.PROMPTS_WRITE)
def shares(request: PageRequest) -> HttpResponse:
    """Keep the columns under a link for the members of the workspace."""
    body = decode(request.body, ShareBody)
    share = saved_columns.create_share(caller=request.caller, title=body.title, state=body.state)
    return json_response(saved_columns.share_json(share), 201)


@require_http_methods(["GET", "DELETE"])
@workspace_page(Permission.PROMPTS_READ)
def share(request: PageRequest, share_id: UUID) -> HttpResponse:
    """Return the columns of a link, or delete it."""
    if request.method == "DELETE":
        request.caller.require(Permission.PROMPTS_WRITE)
        row = saved_columns.get_share(request.caller.workspace_id, share_id)
        saved_columns.delete_share(caller=request.caller, share=row)
        return HttpResponse(status=204)
    return json_response(saved_columns.load_share(request.caller, share_id))


@require_GET
@workspace_page(Permission.PROMPTS_READ)
def filled_in(request: PageRequest) -> HttpResponse:
    """Return columns filled in from a run, a prompt, an example, an agent or a link."""
    caller = request.caller
    if run_id := request.GET.get("run"):
        return json_response(prefill.from_run(caller, _parse_id(run_id)))
    if repo := request.GET.get("prompt"):
        commit = request.GET.get("commit") or "latest"
        return json_response(prefill.from_prompt(caller, repo, commit))
    if example_id := request.GET.get("example"):
        return json_response(prefill.from_example(caller, _parse_id(example_id)))
    if slug := request.GET.get("agent"):
        return json_response(prefill.from_agent(caller, slug[:80]))
    if share_id := request.GET.get("share"):
        return json_response(prefill.from_share(caller, _parse_id(share_id)))
    raise core_errors.BadRequest("Name a `run`, `prompt`, `example`, `agent` or `share`.")


def _parse_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise core_errors.NotFound from None


@require_POST
@workspace_page(Permission.PROMPTS_WRITE)
def prompt_commit(request: PageRequest) -> HttpResponse:
    """Save a column as a commit of a prompt."""
    body = decode(request.body, CommitBody)
    commit = prompt_commits.commit_setting(caller=request.caller, body=body)
    url = reverse("prompt-detail", args=[request.caller.workspace_id, body.repo])
    result = {
        "repo": body.repo,
        "commit_hash": commit.commit_hash,
        "url": f"{url}?commit={commit.commit_hash}",
    }
    return json_response(result, 201)


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.PROMPTS_READ)
def experiment_list(request: PageRequest) -> HttpResponse:
    """Run columns over a dataset, or return the progress of such runs."""
    caller = request.caller
    if request.method == "POST":
        for permission in experiments.START_PERMISSIONS:
            caller.require(permission)
        body = decode(request.body, ExperimentBody)
        created = experiments.create_experiments(caller=caller, body=body)
        return json_response({"jobs": experiments.jobs_json(caller, created)}, 201)
    caller.require(Permission.EXPERIMENTS_READ)
    rows = experiments.load_jobs(caller, _job_ids(request))
    return json_response({"jobs": experiments.jobs_json(caller, rows)})


def _job_ids(request: PageRequest) -> list[UUID]:
    texts = [text for text in request.GET.get("jobs", "").split(",") if text]
    if len(texts) > MAX_COLUMNS:
        raise core_errors.BadRequest(f"`jobs` names at most {MAX_COLUMNS} jobs.")
    return [_parse_id(text) for text in texts]


@require_POST
@workspace_page(Permission.PROMPTS_READ)
def experiment_estimate(request: PageRequest) -> HttpResponse:
    """Return how many examples fit the prompts, and about what a run costs."""
    body = decode(request.body, ExperimentBody)
    return json_response(experiments.estimate(caller=request.caller, body=body))


@require_GET
@workspace_page(Permission.EXPERIMENTS_READ)
def experiment_rows(request: PageRequest) -> HttpResponse:
    """Return the results of experiments by example."""
    request.caller.require(Permission.DATASETS_READ)
    offset, limit = (
        _parse_number(request, name, default) for name, default in (("offset", 0), ("limit", 50))
    )
    shown = request.GET.get("show", experiments.ALL_ROWS)
    rows = experiments.load_rows(
        request.caller, _job_ids(request), offset=offset, limit=limit, shown=shown
    )
    return json_response(rows)


def _parse_number(request: PageRequest, name: str, default: int) -> int:
    text = request.GET.get(name, "")
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 8 else default


@require_POST
@workspace_page(Permission.EXPERIMENTS_WRITE)
def experiment_cancel(request: PageRequest, job_id: UUID) -> HttpResponse:
    """Start no further calls and stop the open ones."""
    jobs.cancel_job(job=experiments.get_job(request.caller, job_id))
    return _job_response(request, job_id)


@require_POST
@workspace_page(Permission.EXPERIMENTS_WRITE)
def experiment_resume(request: PageRequest, job_id: UUID) -> HttpResponse:
    """Continue an ended experiment with the rows that have no result; failed ones run again."""
    for permission in experiments.START_PERMISSIONS:
        request.caller.require(permission)
    jobs.resume_job(job=experiments.get_job(request.caller, job_id))
    return _job_response(request, job_id)


def _job_response(request: PageRequest, job_id: UUID) -> HttpResponse:
    job = experiments.get_job(request.caller, job_id)
    return json_response(experiments.jobs_json(request.caller, [job])[0])
