"""Errors of prompt repositories, each with a stable code."""

from __future__ import annotations

from apps.core import errors


class RepositoryNotFound(errors.NotFound):
    code, detail = "repository_not_found", "No such prompt repository."


class RepositoryExists(errors.Conflict):
    code, detail = "repository_exists", "A repository with this handle already exists."


class RepositoryOfAnotherWorkspace(errors.Forbidden):
    """A public repository can be read by everyone, but changed only by its workspace."""

    code, detail = (
        "repository_of_another_workspace",
        "This public repository belongs to another workspace and cannot be changed.",
    )


class HandleRequired(errors.BadRequest):
    code, detail = (
        "workspace_handle_required",
        "A public repository needs a workspace handle: set it in the workspace settings.",
    )


class PublishingForbidden(errors.Forbidden):
    code, detail = "publishing_forbidden", "Public sharing is turned off in this organization."


class TooManyRepositories(errors.Invalid):
    code, detail = "too_many_repositories", "The workspace has the maximum number of repositories."


class PromptStorageFull(errors.Invalid):
    code, detail = "prompt_storage_full", "The commits of the workspace take up all of its storage."


class WrongRepositoryType(errors.BadRequest):
    """Prompts have manifests, agents and skills have directories of files."""

    code, detail = "wrong_repository_type", "The repository has another type."


class UnsupportedField(errors.Invalid):
    """A field of the public clients whose effect this server does not have."""

    code = "unsupported_field"

    def __init__(self, field: str, value: str) -> None:
        detail = f"`{field}: {value}` is not supported by this server."
        super().__init__(detail, [{"field": field, "message": "Not supported."}])


class CommitNotFound(errors.NotFound):
    code, detail = "commit_not_found", "No such commit or tag in this repository."


class StaleParent(errors.Conflict):
    """The author did not see the newest commit."""

    code = "stale_parent"
    detail = "`parent_commit` is not the latest commit of this repository. Pull it and try again."


class NothingToCommit(errors.Conflict):
    code, detail = "nothing_to_commit", "Nothing to commit: equal to the latest commit."


class BadManifest(errors.BadRequest):
    """The message describes the structure and never contains a value of the manifest."""

    code, detail = "bad_manifest", "The manifest is not a LangChain prompt."


class BadDirectory(errors.Invalid):
    """A path or an entry of a directory is invalid; the message never contains a content."""

    code, detail = "bad_directory", "The files are invalid."


class TagNotFound(errors.NotFound):
    code, detail = "commit_tag_not_found", "No such tag in this repository."


class BadTagName(errors.Invalid):
    code = "bad_commit_tag"
    detail = (
        "A tag has 1 to 100 letters, digits, `.`, `_` and `-`, starts with a letter or digit, and"
        " is not `latest`."
    )


class BadWebhook(errors.Invalid):
    code, detail = "bad_prompt_webhook", "The webhook is invalid."


class WebhookExists(errors.Conflict):
    code, detail = "prompt_webhook_exists", "This webhook `id` cannot be used; choose another."
