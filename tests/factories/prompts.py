from __future__ import annotations

from typing import Any

from apps.core.secrets import encrypt
from apps.organizations.models import Workspace
from apps.prompts.models import Commit, PromptWebhook, Repository
from apps.prompts.services import commit_tags, commits, repositories
from apps.webhooks.models import Delivery


def prompt_manifest(template: str = "Answer {question}") -> dict[str, Any]:
    """A `ChatPromptTemplate` with one message, as `langchain_core.load.dumps` writes it."""
    return {
        "lc": 1,
        "type": "constructor",
        "id": ["langchain", "prompts", "chat", "ChatPromptTemplate"],
        "kwargs": {
            "input_variables": ["question"],
            "messages": [
                {
                    "lc": 1,
                    "type": "constructor",
                    "id": ["langchain", "prompts", "chat", "HumanMessagePromptTemplate"],
                    "kwargs": {
                        "prompt": {
                            "lc": 1,
                            "type": "constructor",
                            "id": ["langchain", "prompts", "prompt", "PromptTemplate"],
                            "kwargs": {
                                "input_variables": ["question"],
                                "template": template,
                                "template_format": "f-string",
                            },
                        }
                    },
                }
            ],
        },
    }


def model_manifest(template: str = "Answer {question}") -> dict[str, Any]:
    """The prompt with a bound model whose key is a secret."""
    return {
        "lc": 1,
        "type": "constructor",
        "id": ["langchain", "schema", "runnable", "RunnableSequence"],
        "kwargs": {
            "first": prompt_manifest(template),
            "last": {
                "lc": 1,
                "type": "constructor",
                "id": ["langchain", "chat_models", "openai", "ChatOpenAI"],
                "kwargs": {
                    "model": "gpt-4o",
                    "openai_api_key": {"lc": 1, "type": "secret", "id": ["OPENAI_API_KEY"]},
                },
            },
        },
    }


def create_prompt(workspace: Workspace, handle: str = "helper", **fields: Any) -> Repository:
    return repositories.create_repository(workspace_id=workspace.pk, handle=handle, **fields)


def create_commit(repository: Repository, template: str = "Answer {question}") -> Commit:
    return commits.create_prompt_commit(
        repository=repository, content=prompt_manifest(template), description=template
    )


def create_webhook_row(
    workspace: Workspace,
    *,
    url: str = "https://ci.example/hook",
    headers: dict[str, str] | None = None,
) -> PromptWebhook:
    webhook = PromptWebhook(
        workspace=workspace, url=url, secret=encrypt("whsec_AAAA"), triggers=["commit"]
    )
    webhook.headers = headers or {}
    webhook.save()
    return webhook


def create_delivery_row(
    webhook: PromptWebhook, commit: Commit, *, author: str = "", **fields: Any
) -> Delivery:
    payload = {
        "event": "commit",
        "prompt_id": str(commit.repository_id),
        "prompt_name": commit.repository.handle,
        "commit_hash": commit.commit_hash,
        "created_at": "2026-03-01T00:00:00Z",
        "created_by": author,
    }
    delivery = Delivery(
        workspace_id=webhook.workspace_id, kind="prompt", endpoint_id=webhook.pk,
        subject_id=commit.repository_id, event="commit", payload=payload, **fields,
    )  # fmt: skip
    delivery.save(force_insert=True)
    return delivery


def create_prompt_rows(workspace: Workspace, mark: str) -> dict[str, object]:
    """One row of each table, marked; the keys are route parameters."""
    repository = create_prompt(workspace, mark, description=mark, readme=mark, tags=[mark])
    commit = create_commit(repository, mark)
    commit_tags.set_tag(repository=repository, name=mark, commit_id=commit.pk)
    repository.likes.create(workspace=workspace, liked_by_id=workspace.pk)
    webhook = create_webhook_row(
        workspace, url=f"https://{mark}.example/", headers={"X-Mark": mark}
    )
    create_delivery_row(webhook, commit, author=mark, status="delivered", last_error=mark)
    return {
        "owner": workspace.handle,
        "repo": mark,
        "commit": "latest",
        "tag_name": mark,
        "webhook_id": webhook.pk,
    }
