"""Pages of prompts, agents and skills."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from apps.core import errors as core_errors
from apps.organizations.permissions import Permission
from apps.prompts import errors, pages, pull_counts
from apps.prompts.forms import (
    MAX_MESSAGES,
    ManifestForm,
    MessagesEditor,
    NewPromptForm,
    PromptSettingsForm,
    TagForm,
)
from apps.prompts.messages import PromptView, new_manifest, present
from apps.prompts.models import Commit, Repository, RepositoryType
from apps.prompts.services import commit_tags, commits, repositories
from apps.prompts.services.lookup import LATEST, OWN, find_commit, find_repository, read_manifest
from apps.web_ui.pages import PageRequest, form_page, save_form, workspace_page


def _find(request: PageRequest, repo: str) -> Repository:
    return find_repository(request.caller.workspace_id, OWN, repo)


def _offset(request: PageRequest) -> int:
    text = request.GET.get("from", "")
    return int(text) if text.isdecimal() and len(text) < 8 else 0


@require_GET
@workspace_page(Permission.PROMPTS_READ)
def prompt_list(request: PageRequest) -> HttpResponse:
    """List prompts, agents or skills, last changed first."""
    kind = request.GET.get("type", RepositoryType.PROMPT)
    if kind not in RepositoryType.values:
        raise core_errors.NotFound
    text, offset = request.GET.get("q", "").replace("\0", "")[:500], _offset(request)
    rows = pages.load_list(request.caller.workspace_id, text=text, kind=kind, offset=offset)
    context = {
        "rows": rows[: pages.PAGE_SIZE],
        "text": text,
        "kind": kind,
        "kinds": RepositoryType.choices,
        "next_offset": offset + pages.PAGE_SIZE if len(rows) > pages.PAGE_SIZE else None,
        "may_write": request.caller.may(Permission.PROMPTS_WRITE),
        "api_url": _api_url(),
    }
    return render(request, "prompts/prompt_list.html", context)


def _api_url() -> str:
    return f"{settings.API_BASE_URL}/api/v1"


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.PROMPTS_WRITE)
def prompt_new(request: PageRequest) -> HttpResponse:
    form = NewPromptForm(request.POST or None)
    workspace_id = request.caller.workspace_id

    def create() -> None:
        fields = form.cleaned_data
        repositories.create_repository(
            workspace_id=workspace_id,
            handle=fields["handle"],
            description=fields["description"],
            tags=fields["tags"],
            created_by_id=request.user.pk,
        )

    if save_form(form, create):
        return redirect("prompt-edit", workspace_id, form.cleaned_data["handle"])
    return form_page(request, "prompts/prompt_new.html", {"form": form}, form)


@require_GET
@workspace_page(Permission.PROMPTS_READ)
def prompt_detail(request: PageRequest, repo: str) -> HttpResponse:
    """Show a prompt, or the files of a directory, at the commit of `?commit=`."""
    repository = _find(request, repo)
    name = request.GET.get("commit", LATEST)[:100]
    page = pages.load_prompt(repository, name)
    if page.commit is not None:
        pull_counts.add(page.commit.pk, is_view=True)
    context = _context(request, repository, "prompt") | {
        "page": page,
        "commit": page.commit,
        "is_latest": page.commit is None or page.commit.pk == repository.head_id,
        "snippets": pages.snippets(repository, name or LATEST, _api_url()),
        "commit_tags": list(commit_tags.tags_of(repository)),
    }
    return render(request, "prompts/prompt_detail.html", context)


@require_GET
@workspace_page(Permission.PROMPTS_READ)
def prompt_commits(request: PageRequest, repo: str) -> HttpResponse:
    repository, offset = _find(request, repo), _offset(request)
    rows = pages.load_history(repository, offset)
    context = _context(request, repository, "commits") | {
        "rows": rows[: pages.PAGE_SIZE],
        "next_offset": offset + pages.PAGE_SIZE if len(rows) > pages.PAGE_SIZE else None,
    }
    return render(request, "prompts/prompt_commits.html", context)


@require_GET
@workspace_page(Permission.PROMPTS_READ)
def prompt_diff(request: PageRequest, repo: str, commit: str) -> HttpResponse:
    """Compare the commit with the one of `?base=`, by default its parent."""
    repository = _find(request, repo)
    row = find_commit(repository, commit)
    base_name = request.GET.get("base", "")[:100] or row.parent_hash
    base = find_commit(repository, base_name) if base_name else None
    context = _context(request, repository, "commits") | {
        "commit": row,
        "base": base,
        "diffs": pages.load_diff(base, row, is_directory=repository.is_directory),
        "history": pages.load_history(repository)[: pages.PAGE_SIZE],
    }
    return render(request, "prompts/prompt_diff.html", context)


@require_GET
@workspace_page(Permission.PROMPTS_READ)
def prompt_runs(request: PageRequest, repo: str) -> HttpResponse:
    """List runs that used the prompt; `?commit=` restricts them to one commit."""
    repository = _find(request, repo)
    request.caller.require(Permission.RUNS_READ)
    name = request.GET.get("commit", "")[:100]
    commit = find_commit(repository, name) if name else None
    rows, next_cursor = pages.load_runs(
        repository,
        commit.commit_hash if commit is not None else None,
        request.GET.get("after") or None,
    )
    context = _context(request, repository, "runs") | {
        "rows": rows,
        "next_cursor": next_cursor,
        "commit": commit,
        "days": pages.RUN_DAYS,
    }
    return render(request, "prompts/prompt_runs.html", context)


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.PROMPTS_WRITE)
def prompt_edit(request: PageRequest, repo: str) -> HttpResponse:
    """Edit the latest commit and commit the change."""
    repository = _find(request, repo)
    if repository.is_directory:
        raise core_errors.NotFound
    page = pages.load_prompt(repository, LATEST)
    if page.view is not None and not page.view.is_editable:
        return _edit_manifest(request, repository, page)
    return _edit_messages(request, repository, page)


def _edit_messages(
    request: PageRequest, repository: Repository, page: pages.PromptPage
) -> HttpResponse:
    view = page.view or _empty_view()
    content = read_manifest(page.commit) if page.commit is not None else None
    editor = MessagesEditor(view, _hash_of(page.commit), request.POST or None)
    if request.method == "POST" and "add" not in request.POST and editor.is_valid():
        fields = editor.form.cleaned_data

        def commit() -> None:
            _commit(request, repository, editor.to_manifest(content), fields)

        if save_form(editor.form, commit):
            return redirect("prompt-detail", repository.workspace_id, repository.handle)
    if "add" in request.POST:
        editor = MessagesEditor(view, _hash_of(page.commit), _with_one_more(request))
    context = _context(request, repository, "prompt") | {
        "editor": editor,
        "form": editor.form,
        "view": view,
    }
    is_adding = "add" in request.POST
    return form_page(
        request, "prompts/prompt_edit.html", context, None if is_adding else editor.form
    )


def _empty_view() -> PromptView:
    return present(new_manifest())


def _with_one_more(request: PageRequest) -> dict[str, Any]:
    """The posted fields with one more, empty message."""
    data = request.POST.dict()
    total = str(data.get("m-TOTAL_FORMS", "0"))
    count = int(total) if total.isdecimal() and len(total) < 4 else 0
    count = min(count, MAX_MESSAGES - 1)
    return {**data, "m-TOTAL_FORMS": str(count + 1), f"m-{count}-role": "human"}


def _hash_of(commit: Commit | None) -> str:
    return commit.commit_hash if commit is not None else ""


def _commit(
    request: PageRequest, repository: Repository, content: Any, fields: dict[str, Any]
) -> None:
    try:
        commits.create_prompt_commit(
            repository=repository,
            content=content,
            parent=fields["parent"] or None,
            description=fields["description"],
            created_by_id=request.user.pk,
        )
    except errors.StaleParent:
        raise errors.StaleParent(
            "The prompt has a newer commit than the one on this page. Copy your change, open the"
            " prompt again and repeat it there."
        ) from None
    messages.success(request, "The change was committed.")


def _edit_manifest(
    request: PageRequest, repository: Repository, page: pages.PromptPage
) -> HttpResponse:
    initial = {"parent": _hash_of(page.commit), "manifest": page.manifest}
    form = ManifestForm(request.POST or None, initial=initial)

    def commit() -> None:
        _commit(request, repository, form.cleaned_data["manifest"], form.cleaned_data)

    if save_form(form, commit):
        return redirect("prompt-detail", repository.workspace_id, repository.handle)
    context = _context(request, repository, "prompt") | {"form": form}
    return form_page(request, "prompts/prompt_edit.html", context, form)


@require_POST
@workspace_page(Permission.PROMPTS_WRITE)
def prompt_tag(request: PageRequest, repo: str, commit: str) -> HttpResponse:
    """Let a tag point to the commit, or remove it with `delete`."""
    repository = _find(request, repo)
    row = find_commit(repository, commit)
    form = TagForm(request.POST)
    name = request.POST.get("name", "")

    def change() -> None:
        if "delete" in request.POST:
            commit_tags.delete_tag(repository=repository, name=name, author_id=request.user.pk)
            messages.success(request, f"The tag {name} was removed.")
        else:
            commit_tags.set_tag(
                repository=repository,
                name=form.cleaned_data["name"],
                commit_id=row.pk,
                author_id=request.user.pk,
            )
            messages.success(request, f"{name} is now commit {row.commit_hash[:8]}.")

    if not save_form(form, change):
        for problems in form.errors.values():
            messages.error(request, str(problems[0]))
    url = reverse("prompt-detail", args=[repository.workspace_id, repository.handle])
    return redirect(f"{url}?{urlencode({'commit': row.commit_hash[:12]})}")


@require_GET
@workspace_page(Permission.PROMPTS_READ)
def prompt_tag_history(request: PageRequest, repo: str, tag_name: str) -> HttpResponse:
    """List the moves of a tag, newest first."""
    repository, offset = _find(request, repo), _offset(request)
    rows = pages.load_tag_moves(repository, tag_name, offset)
    context = _context(request, repository, "commits") | {
        "tag_name": tag_name,
        "rows": rows[: pages.PAGE_SIZE],
        "first_url": request.path if offset else "",
        "next_url": f"?from={offset + pages.PAGE_SIZE}" if len(rows) > pages.PAGE_SIZE else "",
    }
    return render(request, "prompts/prompt_tag_history.html", context)


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.PROMPTS_WRITE)
def prompt_settings(request: PageRequest, repo: str) -> HttpResponse:
    repository = _find(request, repo)
    form = PromptSettingsForm.for_repository(repository, request.POST or None)

    def update() -> None:
        changes = form.cleaned_data
        if changes["is_public"] and not repository.is_public:
            request.caller.require(Permission.PROMPTS_SHARE)
        repositories.update_repository(repository=repository, changes=changes)

    if save_form(form, update):
        messages.success(request, "The settings were saved.")
        return redirect("prompt-settings", repository.workspace_id, repository.handle)
    context = _context(request, repository, "settings") | {"form": form}
    return form_page(request, "prompts/prompt_settings.html", context, form)


@require_POST
@workspace_page(Permission.PROMPTS_DELETE)
def prompt_delete(request: PageRequest, repo: str) -> HttpResponse:
    repository = _find(request, repo)
    repositories.delete_repository(repository=repository)
    messages.success(request, f"{repository.handle} was deleted.")
    return redirect("prompt-list", repository.workspace_id)


@require_GET
def client_link(request: HttpRequest, repo: str, commit: str) -> HttpResponse:
    """Redirect the address that the public clients print to the page of the commit."""
    try:
        workspace_id = UUID(request.GET.get("organizationId", ""))
    except ValueError:
        raise core_errors.NotFound from None
    url = reverse("prompt-detail", args=[workspace_id, repo])
    return redirect(f"{url}?{urlencode({'commit': commit})}")


def _context(request: PageRequest, repository: Repository, tab: str) -> dict[str, Any]:
    caller = request.caller
    return {
        "repository": repository,
        "tab": tab,
        "may_write": caller.may(Permission.PROMPTS_WRITE),
        "may_delete": caller.may(Permission.PROMPTS_DELETE),
        "may_read_runs": caller.may(Permission.RUNS_READ),
    }
