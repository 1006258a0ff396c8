"""Tools that read and commit prompts."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from apps.organizations.permissions import Permission
from apps.platform_mcp.api import NotFoundError, PlatformApi, ToolError
from apps.platform_mcp.registry import Arguments, Flag, JSONObject, Object, ToolGroup
from apps.prompts.messages import PromptMessage, new_manifest, present, replace_messages

OWN = "-"
"""The workspace's own prompts, in paths."""
LATEST = "latest"
MAX_MESSAGES = 100
_LISTED = (
    "repo_handle", "description", "id", "is_public", "tags", "owner", "full_name", "num_likes",
    "num_downloads", "num_views", "last_commit_hash", "created_at", "updated_at",
)  # fmt: skip
_ROLES = {"user": "human", "assistant": "ai"}

tools = ToolGroup()


class ListPrompts(Arguments):
    is_public: Flag = Field(False, description="Published prompts of all workspaces instead.")
    limit: int = Field(20, ge=1, le=100)
    query: str | None = Field(None, description="A text in name, description or labels.")


@tools.declare("List prompts", Permission.PROMPTS_READ)
def list_prompts(api: PlatformApi, arguments: ListPrompts) -> JSONObject:
    """List prompts, the latest changed first."""
    page = api.get(
        "/repos",
        is_public=arguments.is_public,
        limit=arguments.limit,
        query=arguments.query,
    )
    prompts = [{name: row.get(name) for name in _LISTED} for row in page["repos"]]
    return {"prompts": prompts, "total_count": page["total"]}


class GetPrompt(Arguments):
    prompt_name: str = Field(
        min_length=1, description="`name` or `owner/name`, with `:commit` for a commit or tag."
    )


@tools.declare("Read a prompt", Permission.PROMPTS_READ)
def get_prompt_by_name(api: PlatformApi, arguments: GetPrompt) -> JSONObject:
    """Read a prompt with its model, at its latest commit unless another is named."""
    owner, name, commit = _parse_name(arguments.prompt_name)
    path = f"/commits/{owner}/{name}/{commit or LATEST}"
    row = api.get(path, include_model=True)
    return {
        "prompt_name": name,
        "commit_hash": row["commit_hash"],
        "description": row.get("description"),
        "manifest": row["manifest"],
    }


class TemplateMessage(Arguments):
    role: Literal["system", "human", "user", "ai", "assistant", "placeholder"]
    content: str = Field(description="The template; of a placeholder, the variable's name.")


class PushPrompt(Arguments):
    prompt_name: str = Field(min_length=1, description="Created if the workspace has no such one.")
    messages: list[TemplateMessage] | None = Field(
        None, min_length=1, max_length=MAX_MESSAGES, description="The messages of a chat prompt."
    )
    template_format: Literal["f-string", "mustache"] = Field(
        "f-string", description="Whether variables are {name} or {{name}}."
    )
    manifest: Object | None = Field(
        None, description="A whole serialized prompt, instead of messages."
    )
    parent_commit: str | None = Field(
        None, description="Refuse the commit if this one is not the latest."
    )
    description: str | None = Field(None, description="What changed.")


@tools.declare("Commit a prompt", Permission.PROMPTS_READ, Permission.PROMPTS_WRITE, changes=True)
def push_prompt(api: PlatformApi, arguments: PushPrompt) -> JSONObject:
    """Commit a new version of a prompt. With messages, the model of the latest version stays."""
    if (arguments.messages is None) == (arguments.manifest is None):
        raise ToolError("Give either messages or manifest.")
    owner, name, commit = _parse_name(arguments.prompt_name)
    if owner != OWN or commit is not None:
        raise ToolError("prompt_name: must be the name of a prompt of your workspace.")
    manifest = arguments.manifest
    if arguments.messages is not None:
        manifest = _with_messages(_latest_manifest(api, name), arguments)
    _ensure_repository(api, name)
    body = {
        "manifest": manifest,
        "parent_commit": arguments.parent_commit,
        "description": arguments.description,
    }
    committed = api.post(f"/commits/{OWN}/{name}", body)["commit"]
    return {"prompt_name": name, "commit_hash": committed["commit_hash"]}


def _latest_manifest(api: PlatformApi, name: str) -> JSONObject:
    try:
        row = api.get(f"/commits/{OWN}/{name}/{LATEST}", include_model=True)
    except NotFoundError:
        return new_manifest()
    manifest: JSONObject = row["manifest"]
    return manifest


def _with_messages(manifest: JSONObject, arguments: PushPrompt) -> JSONObject:
    view = present(manifest)
    if not view.is_editable or [message.role for message in view.messages] == ["text"]:
        raise ToolError("The prompt is no list of plain messages. Give a manifest instead.")
    messages = [
        PromptMessage(_ROLES.get(message.role, message.role), message.content)
        for message in arguments.messages or ()
    ]
    try:
        return replace_messages(manifest, messages, arguments.template_format)
    except ValueError as error:
        raise ToolError(f"messages: {error}") from None


def _ensure_repository(api: PlatformApi, name: str) -> None:
    try:
        api.get(f"/repos/{OWN}/{name}")
    except NotFoundError:
        api.post("/repos", {"repo_handle": name, "is_public": False})


def _parse_name(text: str) -> tuple[str, str, str | None]:
    """Owner, name and commit of `owner/name:commit`. Raises `ToolError`."""
    path, _, commit = text.partition(":")
    owner, _, name = path.rpartition("/")
    if not name or "/" in owner or "/" in commit:
        raise ToolError("prompt_name: must be `name`, `owner/name` or `owner/name:commit`.")
    return owner or OWN, name, commit or None
