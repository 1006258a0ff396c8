"""Public prompts are pulled without a key; nothing else of prompts is readable without one."""

from __future__ import annotations

import pytest
from django.test import Client
from django.utils import timezone

from apps.prompts import pull_counts
from tests.factories.organizations import WorkspaceFactory
from tests.factories.prompts import create_commit, create_prompt

pytestmark = pytest.mark.django_db


@pytest.fixture
def published(workspace):
    """A public prompt `acme/open` with a commit."""
    prompt = create_prompt(workspace, "open")
    prompt.is_public = True
    prompt.save()
    create_commit(prompt, "hello {name}")
    prompt.refresh_from_db()
    return prompt


def pull(path: str = "/commits/acme/open/latest", **headers: str):
    return Client().get(path, headers=headers)


def test_public_prompt_is_pulled_without_a_key(published):
    response = pull("/api/v1/commits/acme/open/latest")

    assert response.status_code == 200
    body = response.json()
    assert body["commit_hash"] == published.head.commit_hash
    assert body["manifest"]["lc"] == 1
    assert set(body) == {"commit_hash", "manifest", "examples", "description"}
    assert pull(f"/commits/acme/open/{body['commit_hash']}").json() == body


def test_anonymous_pull_is_counted(published):
    pull_counts.flush()
    pull()
    pull_counts.flush()

    published.refresh_from_db()
    assert published.num_downloads == 1


def make_private(prompt):
    prompt.is_public = False
    prompt.save()


def remove_handle(prompt):
    prompt.workspace.handle = None
    prompt.workspace.save()


def delete_workspace(prompt):
    prompt.workspace.deleted_at = timezone.now()
    prompt.workspace.save()


def forbid_sharing(prompt):
    prompt.workspace.organization.public_sharing_disabled = True
    prompt.workspace.organization.save()


@pytest.mark.parametrize("change", [make_private, remove_handle, delete_workspace, forbid_sharing])
def test_prompt_that_is_not_public_is_like_a_missing_one(published, change):
    change(published)

    response, missing = pull(), pull("/commits/acme/missing/latest")

    assert response.status_code == missing.status_code == 401
    assert response.json() == missing.json()


def test_own_workspace_needs_credentials(published):
    assert pull("/commits/-/open/latest").status_code == 401


def test_unknown_commit_of_a_public_prompt_is_not_found(published):
    response = pull("/commits/acme/open/00000000")

    assert (response.status_code, response.json()["code"]) == (404, "commit_not_found")


def test_invalid_key_is_rejected_also_for_public_prompts(published):
    assert pull(**{"X-Api-Key": "slip_unknown"}).status_code == 401


@pytest.mark.parametrize(
    "path",
    [
        "/repos",
        "/repos/acme/open",
        "/repos/acme/open/tags",
        "/repos/acme/open/tags/production",
        "/commits/acme/open",
        "/commits/acme/open/latest/diff",
        "/v1/platform/hub/repos/acme/open/directories",
    ],
)
def test_other_reads_of_public_prompts_need_a_key(published, path):
    assert pull(path).status_code == 401


@pytest.mark.parametrize("method", ["post", "put", "patch", "delete"])
def test_public_prompt_is_not_changed_without_a_key(published, method):
    response = getattr(Client(), method)("/commits/acme/open/latest")

    assert response.status_code == 401


def test_key_with_prompts_of_another_workspace_reads_public_ones(published, make_api):
    outsider = make_api(WorkspaceFactory())

    assert outsider.get("/commits/acme/open/latest").status_code == 200
