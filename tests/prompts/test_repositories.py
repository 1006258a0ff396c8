"""Repositories: create, list, change, delete and like."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection, transaction

from apps.audit.models import Entry
from apps.prompts import pull_counts
from apps.prompts.models import Commit, Like, Repository
from apps.prompts.services.repositories import delete_repository, lock_repository
from tests.factories.organizations import WorkspaceFactory
from tests.factories.prompts import create_commit, create_prompt

URL = "/repos/-/helper"


def list_handles(api, **query):
    return [row["repo_handle"] for row in api.get("/repos", **query).json()["repos"]]


def test_repository_is_created_and_read(api, workspace):
    body = {
        "repo_handle": "helper",
        "description": "Helps.",
        "readme": "# Help",
        "tags": ["support"],
        "is_public": False,
    }

    created = api.post("/repos/", body).json()["repo"]

    row = Repository.objects.for_workspace(workspace).get()
    assert created.pop("created_at")
    assert created.pop("updated_at")
    assert created.pop("owners") == []
    assert created == {
        "id": str(row.pk),
        "tenant_id": str(workspace.pk),
        "repo_handle": "helper",
        "repo_type": "prompt",
        "description": "Helps.",
        "readme": "# Help",
        "tags": ["support"],
        "owner": "acme",
        "full_name": "acme/helper",
        "is_public": False,
        "is_archived": False,
        "restricted_mode": False,
        "source": "internal",
        "num_likes": 0,
        "num_downloads": 0,
        "num_views": 0,
        "num_commits": 0,
        "liked_by_auth_user": False,
        "last_commit_hash": None,
        "commit_tags": [],
        "created_by": None,
        "original_repo_id": None,
        "original_repo_full_name": None,
        "upstream_repo_id": None,
        "upstream_repo_full_name": None,
        "latest_commit_manifest": None,
    }
    assert api.get(URL).json()["repo"]["id"] == str(row.pk)
    assert api.get("/repos/acme/helper").json()["repo"]["id"] == str(row.pk)


def test_workspace_without_handle_has_no_owner(make_api, other_workspace):
    created = make_api(other_workspace).post("/repos", {"repo_handle": "a", "is_public": False})

    repo = created.json()["repo"]
    assert (repo["owner"], repo["full_name"]) == (None, "-/a")


@pytest.mark.parametrize("handle", ["Upper", "1st", "a b", "a/b", "-a", "", "a" * 101])
def test_invalid_handle_is_rejected(api, workspace, handle):
    response = api.post("/repos", {"repo_handle": handle, "is_public": False})

    assert response.status_code == 422
    assert not Repository.objects.for_workspace(workspace).exists()


def test_taken_handle_is_a_conflict(api, prompt):
    response = api.post("/repos", {"repo_handle": "helper", "is_public": False})

    assert (response.status_code, response.json()["code"]) == (409, "repository_exists")
    assert "already exists" in response.json()["detail"]


@pytest.mark.parametrize(
    ("field", "value"),
    [("restricted_mode", True), ("source", "external"), ("repo_type", "file")],
)
def test_unsupported_field_is_refused_by_name(api, workspace, field, value):
    body = {"repo_handle": "helper", "is_public": False, field: value}

    response = api.post("/repos", body)

    assert (response.status_code, response.json()["code"]) == (422, "unsupported_field")
    assert response.json()["errors"] == [{"field": field, "message": "Not supported."}]
    assert not Repository.objects.for_workspace(workspace).exists()


def test_outsider_and_reader_cannot_change_a_repository(
    make_api, workspace, other_workspace, prompt
):
    outsider, reader = make_api(other_workspace), make_api(workspace, "read")

    assert outsider.get("/repos/acme/helper").status_code == 404
    for api, status in ((outsider, 404), (reader, 403)):
        url = "/repos/acme/helper"
        assert api.patch(url, {"description": "x"}).status_code == status
        assert api.delete(url).status_code == status
        assert api.post("/likes/acme/helper", {"like": True}).status_code == status
        assert api.post(f"{url}/tags", {}).status_code == status
    assert reader.post("/repos", {"repo_handle": "x", "is_public": False}).status_code == 403
    assert reader.get("/repos/acme/helper").status_code == 200
    prompt.refresh_from_db()
    assert (prompt.description, prompt.num_likes) == ("", 0)


def test_fields_are_changed_and_audited(api, workspace, prompt):
    response = api.patch(URL, {"description": "new", "tags": ["b"], "is_archived": True})

    repo = response.json()["repo"]
    assert (repo["description"], repo["tags"], repo["is_archived"]) == ("new", ["b"], True)
    entry = Entry.objects.filter(action="prompt.updated").get()
    assert entry.before == {"description": "", "tags": [], "is_archived": False}
    assert entry.after == {"description": "new", "tags": ["b"], "is_archived": True}
    assert api.patch(URL, {"restricted_mode": True}).json()["code"] == "unsupported_field"


def test_deletion_removes_commits_tags_and_likes(api, workspace, prompt):
    commit = create_commit(prompt)
    api.post(f"{URL}/tags", {"tag_name": "production", "commit_id": str(commit.pk)})
    api.post("/likes/-/helper", {"like": True})

    response = api.delete(URL)

    assert (response.status_code, response.json()) == (200, {})
    assert api.get(URL).status_code == 404
    assert api.get("/commits/-/helper/latest").status_code == 404
    assert not Commit.unscoped.exists()
    assert not Like.unscoped.exists()
    assert [e.action for e in Entry.objects.order_by("at")][-1] == "prompt.deleted"


def test_public_repository_is_readable_by_others_but_not_writable(
    make_api, api, workspace, other_workspace, prompt
):
    api.patch(URL, {"is_public": True})
    create_commit(prompt)
    outsider = make_api(other_workspace)

    repo = outsider.get("/repos/acme/helper").json()["repo"]
    assert (repo["full_name"], repo["created_by"], repo["owners"]) == ("acme/helper", None, [])
    assert outsider.get("/commits/acme/helper/latest").status_code == 200
    for response in (
        outsider.patch("/repos/acme/helper", {"description": "mine"}),
        outsider.delete("/repos/acme/helper"),
        outsider.post("/commits/acme/helper", {}),
        outsider.post("/repos/acme/helper/tags", {}),
    ):
        assert response.status_code == 403
        assert response.json()["code"] == "repository_of_another_workspace"
    assert list_handles(outsider) == []
    assert list_handles(outsider, is_public="true") == ["helper"]
    assert list_handles(outsider, tenant_handle="acme") == ["helper"]
    assert list_handles(outsider, tenant_id=str(workspace.pk), is_public="false") == []
    assert list_handles(api, is_public="false") == []
    actions = {entry.action for entry in Entry.objects.all()}
    assert {"prompt.published", "prompt.updated"} <= actions


def test_publishing_needs_a_handle_and_the_organizations_consent(
    api, make_api, workspace, other_workspace, prompt
):
    no_handle = make_api(other_workspace).post("/repos", {"repo_handle": "a", "is_public": True})
    assert (no_handle.status_code, no_handle.json()["code"]) == (400, "workspace_handle_required")

    organization = workspace.organization
    organization.public_sharing_disabled = True
    organization.save()
    refused = api.patch(URL, {"is_public": True})
    assert (refused.status_code, refused.json()["code"]) == (403, "publishing_forbidden")
    assert api.get(URL).json()["repo"]["is_public"] is False


def test_organization_that_disables_sharing_hides_its_public_repositories(
    api, make_api, workspace, other_workspace, prompt
):
    api.patch(URL, {"is_public": True})
    organization = workspace.organization
    organization.public_sharing_disabled = True
    organization.save()

    outsider = make_api(other_workspace)

    assert outsider.get("/repos/acme/helper").status_code == 404
    assert list_handles(outsider, is_public="true") == []


def test_like_counts_once_per_caller(api, make_api, workspace, other_workspace, prompt):
    outsider = make_api(other_workspace)
    api.patch(URL, {"is_public": True})

    assert api.post("/likes/-/helper", {"like": True}).json() == {"likes": 1}
    assert api.post("/likes/-/helper", {"like": True}).json() == {"likes": 1}
    assert outsider.post("/likes/acme/helper", {"like": True}).json() == {"likes": 2}
    assert api.get(URL).json()["repo"]["liked_by_auth_user"] is True
    assert api.post("/likes/-/helper", {"like": False}).json() == {"likes": 1}
    assert api.get(URL).json()["repo"]["liked_by_auth_user"] is False
    assert api.post("/likes/-/helper", {}).status_code == 422


def test_list_is_filtered_searched_and_sorted(api, workspace):
    rows = {
        "joke-teller": {"description": "Tells jokes", "tags": ["fun", "short"]},
        "summarizer": {"readme": "A joke-free summary", "tags": ["fun"]},
        "translator": {"description": "Translates 100% of a_b"},
    }
    for handle, fields in rows.items():
        create_prompt(workspace, handle, **fields)
    create_prompt(workspace, "coder", type="agent")
    create_commit(create_prompt(workspace, "archived", is_public=True))
    api.patch("/repos/-/archived", {"is_archived": True})
    api.post("/likes/-/summarizer", {"like": True})

    assert list_handles(api) == ["translator", "summarizer", "joke-teller"]
    assert list_handles(api, sort_field="updated_at", sort_direction="asc")[0] == "joke-teller"
    assert list_handles(api, sort_field="num_likes")[0] == "summarizer"
    assert list_handles(api, sort_field="PromptSortField.num_likes")[0] == "summarizer"
    assert list_handles(api, is_archived="true") == ["archived"]
    assert len(list_handles(api, is_archived="allow")) == 4
    assert list_handles(api, has_commits="true", is_archived="allow") == ["archived"]
    assert list_handles(api, repo_type="agent") == ["coder"]
    assert len(list_handles(api, repo_types=["agent", "prompt"])) == 4
    assert list_handles(api, tags=["fun"]) == ["summarizer", "joke-teller"]
    assert list_handles(api, tags=["fun", "short"]) == ["joke-teller"]
    assert list_handles(api, query="joke") == ["summarizer", "joke-teller"]
    assert list_handles(api, query="jokes") == ["joke-teller"]
    assert list_handles(api, query="summ", match_prefix="true") == ["summarizer"]
    assert list_handles(api, query="Translat") == ["translator"]  # a part of the handle
    assert list_handles(api, query="lator 10") == []
    assert list_handles(api, query="lator 10", match_prefix="True") == ["translator"]
    assert list_handles(api, query="a.b") == []
    assert list_handles(api, query="joke", sort_field="relevance")[0] == "joke-teller"
    assert list_handles(api, source="external") == []
    assert list_handles(api, upstream_repo_owner="acme") == []
    assert list_handles(api, limit=1, offset=1) == ["summarizer"]
    body = api.get("/repos", limit=1, offset=2).json()
    assert (len(body["repos"]), body["total"]) == (1, 3)
    labels = api.get("/repos/tags").json()
    assert labels == {"tags": [{"tag": "fun", "count": 2}, {"tag": "short", "count": 1}]}
    assert api.get("/repos", sort_field="name").status_code == 422
    assert api.get("/repos", limit=0).status_code == 422


def test_workspace_tags_are_set_and_filter_the_list(api, workspace):
    key = api.post("/workspaces/current/tag-keys", {"key": "Team"}).json()
    value = api.post(f"/workspaces/current/tag-keys/{key['id']}/tag-values", {"value": "a"}).json()

    body = {"repo_handle": "tagged", "is_public": False, "tag_value_ids": [value["id"]]}
    assert api.post("/repos", body).status_code == 200
    create_prompt(workspace, "other")

    assert list_handles(api, tag_value_id=[value["id"]]) == ["tagged"]


def test_list_has_the_latest_manifest_and_owners_on_request(api, workspace, prompt):
    commit = create_commit(prompt)

    (repo,) = api.get("/repos", with_latest_manifest="true", include_owners="true").json()["repos"]

    assert repo["latest_commit_manifest"]["commit_hash"] == commit.commit_hash
    assert repo["latest_commit_manifest"]["manifest"]["id"][-1] == "ChatPromptTemplate"
    assert (repo["owners"], repo["last_commit_hash"]) == ([], commit.commit_hash)


@pytest.mark.parametrize("count", [2, 12])
def test_number_of_queries_of_the_list_does_not_grow(
    api, workspace, count, django_assert_num_queries
):
    for number in range(count):
        create_commit(create_prompt(workspace, f"prompt-{number}"))
    api.get("/repos")

    with django_assert_num_queries(4):
        assert len(list_handles(api)) == count


def test_counts_of_pulls_and_views_are_flushed(api, workspace, prompt):
    commit = create_commit(prompt)
    for _ in range(3):
        api.get("/commits/-/helper/latest")
    api.get("/commits/-/helper/latest", is_view="true")

    pull_counts.flush()
    pull_counts.flush()

    repo = api.get(URL).json()["repo"]
    assert (repo["num_downloads"], repo["num_views"]) == (3, 1)
    commit.refresh_from_db()
    assert (commit.num_downloads, commit.num_views) == (3, 1)
    assert list_handles(api, sort_field="num_downloads") == ["helper"]


@pytest.mark.django_db(transaction=True)
def test_counting_pulls_waits_for_the_deletion_of_the_prompt(prompt):
    """Each waited for a row of the other, so PostgreSQL ended one of them."""
    pull_counts.add(create_commit(prompt).pk)

    def flush():
        pull_counts.flush()
        connection.close()

    with ThreadPoolExecutor(1) as threads:
        with transaction.atomic(), connection.cursor() as cursor:
            lock_repository(prompt)
            flushed = threads.submit(flush)
            while not cursor.execute(_BLOCKED).fetchone()[0]:
                assert not flushed.done(), flushed.exception()
                time.sleep(0.01)
            delete_repository(repository=prompt)
        flushed.result(timeout=60)

    assert not Commit.unscoped.exists()


_BLOCKED = """
SELECT count(*) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))
"""


def test_a_handle_belongs_to_its_workspace(make_api, workspace, prompt):
    neighbour = WorkspaceFactory(handle="neighbour")
    create_prompt(neighbour, "helper", description="theirs", is_public=True)

    api = make_api(workspace)

    assert api.get("/repos/neighbour/helper").json()["repo"]["description"] == "theirs"
    assert api.get("/repos/-/helper").json()["repo"]["description"] == ""
    assert api.get("/repos/unknown/helper").status_code == 404
