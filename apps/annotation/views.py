"""Pages of annotation queues: the list, the settings, and the review of one item after another."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from apps.annotation import errors
from apps.annotation.forms import AddToQueueForm, QueueForm, ScoreForm, format_rubric
from apps.annotation.models import AnnotationQueue, QueueItem
from apps.annotation.pages import queue_list as list_pages
from apps.annotation.pages import review as pages
from apps.annotation.pages.review import ReviewPage
from apps.annotation.services import queues as services
from apps.annotation.services.items import add_experiments, add_rows, get_item
from apps.annotation.services.reviews import COMPLETED, VIEWED, set_status
from apps.annotation.services.scoring import give_feedback
from apps.core import errors as core_errors
from apps.datasets.pages import run_selection
from apps.organizations.permissions import Permission
from apps.trace_store import RunRow
from apps.tracing.models import Project
from apps.tracing.services import get_project
from apps.web_ui.pages import PageRequest, form_page, read_offset, save_form, workspace_page


@require_GET
@workspace_page(Permission.ANNOTATION_QUEUES_READ)
def annotation_list(request: PageRequest) -> HttpResponse:
    text = request.GET.get("q", "").replace("\0", "")[:500].strip()
    offset = read_offset(request)
    context = {
        "list": list_pages.load_list(
            request.caller.workspace_id, request.user.pk, text=text, offset=offset
        ),
        "text": text,
        "offset": offset,
        "may_write": request.caller.may(Permission.ANNOTATION_QUEUES_WRITE),
    }
    return render(request, "annotation/queue_list.html", context)


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.ANNOTATION_QUEUES_WRITE)
def annotation_new(request: PageRequest) -> HttpResponse:
    form = QueueForm(request.POST or None)
    workspace_id = request.caller.workspace_id
    created: list[AnnotationQueue] = []

    def create() -> None:
        created.append(services.create_queue(workspace_id=workspace_id, **_queue_fields(form)))

    if save_form(form, create):
        return redirect("annotation-review", workspace_id, created[0].pk)
    return form_page(request, "annotation/queue_form.html", {"form": form, "queue": None}, form)


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.ANNOTATION_QUEUES_WRITE)
def annotation_settings(request: PageRequest, queue_id: UUID) -> HttpResponse:
    queue = services.get_queue(request.caller.workspace_id, queue_id)
    initial = {
        "name": queue.name,
        "description": queue.description or "",
        "rubric_instructions": queue.rubric_instructions or "",
        "rubric": format_rubric(queue.rubric_items),
        "num_reviewers_per_item": queue.num_reviewers_per_item or 1,
    }
    form = QueueForm(request.POST or None, initial=initial, rubric_items=queue.rubric_items)

    def update() -> None:
        fields = _queue_fields(form)
        rubric_items = fields.pop("rubric_items")
        if queue.num_reviewers_per_item is None and "num_reviewers_per_item" not in (
            form.changed_data
        ):
            del fields["num_reviewers_per_item"]
        services.update_queue(queue=queue, changes=fields, rubric_items=rubric_items)

    if save_form(form, update):
        messages.success(request, "The settings were saved.")
        return redirect("annotation-review", queue.workspace_id, queue.pk)
    context = {"form": form, "queue": queue}
    return form_page(request, "annotation/queue_form.html", context, form)


def _queue_fields(form: QueueForm) -> dict[str, Any]:
    fields: dict[str, Any] = dict(form.cleaned_data)
    fields["rubric_items"] = fields.pop("rubric")
    return fields


@require_POST
@workspace_page(Permission.ANNOTATION_QUEUES_WRITE)
def annotation_delete(request: PageRequest, queue_id: UUID) -> HttpResponse:
    queue = services.get_queue(request.caller.workspace_id, queue_id)
    services.delete_queues(queues=[queue])
    messages.success(request, f"{queue.name} was deleted. Its runs and their feedback stay.")
    return redirect("annotation-list", queue.workspace_id)


@require_GET
@workspace_page(Permission.ANNOTATION_QUEUES_READ)
def annotation_review(request: PageRequest, queue_id: UUID) -> HttpResponse:
    """Show the item of `item`, or the reviewer's first; the page reserves it when it is open."""
    request.caller.require(Permission.RUNS_READ)
    queue = services.get_queue(request.caller.workspace_id, queue_id)
    item = pages.find_item(queue, request.user.pk, request.GET.get("item", ""))
    may_write = request.caller.may(Permission.ANNOTATION_QUEUES_WRITE)
    if item is None:
        has_items = queue.items.exists()
        context = {"queue": queue, "has_items": has_items, "may_write": may_write}
        return render(request, "annotation/queue_empty.html", context)
    return _render_review(request, queue, item)


def _render_review(
    request: PageRequest, queue: AnnotationQueue, item: QueueItem, missing: Any = ()
) -> HttpResponse:
    page = pages.load_page(queue, request.user.pk, item)
    context = {
        **_rubric_context(request, page),
        "missing": missing,
        "may_write": request.caller.may(Permission.ANNOTATION_QUEUES_WRITE),
    }
    return render(request, "annotation/review.html", context, status=422 if missing else 200)


def _rubric_context(request: PageRequest, page: ReviewPage) -> dict[str, Any]:
    caller = request.caller
    may_review = caller.may(Permission.ANNOTATION_QUEUES_REVIEW)
    is_open = page.is_open and may_review
    queue = page.queue
    return {
        "page": page,
        "queue": queue,
        "item": page.item,
        "project": page.project,
        "run": page.run,
        "is_open": is_open,
        "may_score": is_open and caller.may(Permission.FEEDBACK_WRITE),
        "is_blind": page.is_blind and may_review,
        "choices": pages.load_choices(queue, request.user.pk, page.item),
        "feedback_url": reverse(
            "annotation-score", args=[queue.workspace_id, queue.pk, page.item.pk]
        ),
    }


def _find(request: PageRequest, queue_id: UUID, queue_item_id: UUID) -> QueueItem:
    queue = services.get_queue(request.caller.workspace_id, queue_id)
    return get_item(queue, queue_item_id)


@require_POST
@workspace_page(Permission.ANNOTATION_QUEUES_REVIEW)
def annotation_reserve(request: PageRequest, queue_id: UUID, queue_item_id: UUID) -> HttpResponse:
    """Reserve the item and return until when; load the page again if enough others have it."""
    item = _find(request, queue_id, queue_item_id)
    try:
        review = set_status(item=item, reviewer_id=request.user.pk, status=VIEWED)
    except errors.QueueItemReserved:
        return HttpResponse(status=204, headers={"HX-Refresh": "true"})
    return render(request, "annotation/reservation.html", {"review": review})


@require_POST
@workspace_page(Permission.ANNOTATION_QUEUES_REVIEW)
def annotation_score(request: PageRequest, queue_id: UUID, queue_item_id: UUID) -> HttpResponse:
    """Store the score or the comment of one key; for htmx, return the rubric."""
    request.caller.require(Permission.FEEDBACK_WRITE)
    item = _find(request, queue_id, queue_item_id)
    form = ScoreForm(request.POST)

    def give() -> None:
        fields = form.cleaned_data
        give_feedback(
            item=item,
            user_id=request.user.pk,
            key=fields["key"],
            score=fields["score"],
            comment=fields["comment"] or None,
        )

    is_saved = save_form(form, give)
    if not request.htmx:
        if not is_saved:
            messages.error(request, " ".join(str(e) for es in form.errors.values() for e in es))
        return _to_review(item, item.pk)
    page = pages.load_page(item.queue, request.user.pk, item)
    context = _rubric_context(request, page) | {"form": form}
    if not is_saved:  # the fields keep their text also if another has reserved the item meanwhile
        context["may_score"] = True
    status = 200 if is_saved else 422
    return render(request, "annotation/review.html#rubric", context, status=status)


@require_POST
@workspace_page(Permission.ANNOTATION_QUEUES_REVIEW)
def annotation_complete(request: PageRequest, queue_id: UUID, queue_item_id: UUID) -> HttpResponse:
    """End the review if every required key has feedback, and open the next item."""
    item = _find(request, queue_id, queue_item_id)
    missing = pages.list_missing(item.queue, request.user.pk, item)
    if missing:
        return _render_review(request, item.queue, item, missing)
    try:
        set_status(item=item, reviewer_id=request.user.pk, status=COMPLETED)
    except errors.QueueItemReserved as error:
        messages.error(request, error.detail)
    return _to_review(item)


@require_POST
@workspace_page(Permission.ANNOTATION_QUEUES_REVIEW)
def annotation_skip(request: PageRequest, queue_id: UUID, queue_item_id: UUID) -> HttpResponse:
    """Move the item to the end of the reviewer's own order, and open the next one."""
    item = _find(request, queue_id, queue_item_id)
    set_status(
        item=item,
        reviewer_id=request.user.pk,
        status=None,
        override_added_at=timezone.now(),
    )
    return _to_review(item)


def _to_review(item: QueueItem, item_id: UUID | None = None) -> HttpResponse:
    url = reverse("annotation-review", args=[item.workspace_id, item.queue_id])
    return redirect(url if item_id is None else f"{url}?{urlencode({'item': str(item_id)})}")


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.ANNOTATION_QUEUES_WRITE)
def annotation_add(request: PageRequest) -> HttpResponse:
    """Choose a queue for the runs of `run`, of `thread` in `project`, or of `experiment`."""
    workspace_id = request.caller.workspace_id
    request.caller.require(Permission.RUNS_READ)
    query = request.POST if request.method == "POST" else request.GET
    experiment = _find_experiment(workspace_id, query.get("experiment", ""))
    runs = [] if experiment else _load_runs(workspace_id, query)
    form = AddToQueueForm(request.POST if "add" in request.POST else None)
    added: list[AnnotationQueue] = []
    if save_form(form, lambda: added.append(_add(request, form, runs, experiment))):
        if request.htmx:
            return render(request, "annotation/add_runs.html#added", {"queue": added[0]})
        return redirect("annotation-review", workspace_id, added[0].pk)
    queues = AnnotationQueue.objects.for_workspace(workspace_id).only("workspace_id", "name")
    context = {
        "queues": list(queues.order_by("-updated_at", "pk")[: services.MAX_QUEUES]),
        "form": form,
        "runs": runs,
        "experiment": experiment,
        "has_more": len(runs) == run_selection.MAX_RUNS,
    }
    part = "#dialog" if request.htmx else ""
    status = 422 if form.is_bound else 200
    return render(request, f"annotation/add_runs.html{part}", context, status=status)


def _find_experiment(workspace_id: UUID, text: str) -> Project | None:
    if not text:
        return None
    try:
        return get_project(workspace_id, UUID(text))
    except ValueError:
        raise core_errors.BadRequest("`experiment` must be an id.") from None


def _load_runs(workspace_id: UUID, query: Any) -> list[RunRow]:
    thread_key = query.get("thread", "")
    if thread_key:
        return run_selection.load_turns(workspace_id, query.get("project", ""), thread_key)
    return run_selection.load_runs(workspace_id, query.getlist("run"))


@transaction.atomic
def _add(
    request: PageRequest, form: AddToQueueForm, runs: list[RunRow], experiment: Project | None
) -> AnnotationQueue:
    """Add the runs to the chosen queue, which is created if it is new."""
    fields, workspace_id = form.cleaned_data, request.caller.workspace_id
    if not runs and experiment is None:
        raise core_errors.Invalid("No runs are selected.")
    if fields["queue"] is None:
        queue = services.create_queue(workspace_id=workspace_id, name=fields["name"])
    else:
        queue = services.get_queue(workspace_id, fields["queue"])
    if experiment is None:
        add_rows(queue=queue, rows=runs)
    else:
        add_experiments(queue=queue, experiment_ids=[experiment.pk])
    return queue
