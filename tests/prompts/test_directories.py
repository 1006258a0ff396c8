"""Directories of agents and skills: files, links, paths and parents."""

from __future__ import annotations

from uuid import uuid4

import pytest

from apps.prompts.models import Commit, Repository
from apps.prompts.services import directories
from tests.factories.prompts import create_commit, create_prompt

URL = "/v1/platform/hub/repos/-/coder/directories"


@pytest.fixture
def agent(workspace):
    return create_prompt(workspace, "coder", type="agent")


def push(api, files, url=URL, **fields):
    return api.post(f"{url}/commits", {"files": files, **fields})


def file(content):
    return {"type": "file", "content": content}


def test_files_are_added_changed_deleted_and_pulled(api, workspace, agent):
    first = push(api, {"AGENTS.md": file("# Hi"), "src/a.py": file("a = 1\n")}).json()["commit"]
    second = push(api, {"AGENTS.md": file("# Hello"), "src/a.py": None}).json()["commit"]

    assert set(first) == {"id", "commit_hash", "created_at"}
    assert api.get(URL).json() == {
        "commit_id": second["id"],
        "commit_hash": second["commit_hash"],
        "files": {"AGENTS.md": file("# Hello")},
    }
    old = api.get(URL, commit=first["commit_hash"][:8], repo_type="agent").json()
    assert old["files"] == {"AGENTS.md": file("# Hi"), "src/a.py": file("a = 1\n")}
    api.post("/repos/-/coder/tags", {"tag_name": "v1", "commit_id": first["id"]})
    assert api.get(URL, commit="v1").json()["commit_id"] == first["id"]
    assert api.get("/commits/-/coder").json()["total"] == 2


def test_other_type_is_not_found(api, workspace, agent):
    create_commit(create_prompt(workspace, "helper"))

    assert api.get(URL, repo_type="skill").status_code == 404
    assert api.delete(f"{URL}?repo_type=skill").status_code == 404
    assert api.get("/v1/platform/hub/repos/-/helper/directories").status_code == 404
    assert push(api, {}, "/v1/platform/hub/repos/-/helper/directories").status_code == 404
    assert Repository.objects.for_workspace(workspace).count() == 2


def test_outsider_and_reader_cannot_commit_files(make_api, workspace, other_workspace, agent):
    outsider, reader = make_api(other_workspace), make_api(workspace, "read")
    url = URL.replace("/-/", "/acme/")

    assert outsider.get(url).status_code == 404
    assert push(outsider, {"a": file("a")}, url).status_code == 404
    assert outsider.delete(url).status_code == 404
    assert push(reader, {"a": file("a")}, url).status_code == 403
    assert reader.delete(url).status_code == 403
    assert not Commit.objects.for_workspace(workspace).exists()


def test_stale_parent_and_equal_files_are_conflicts(api, workspace, agent):
    first = push(api, {"a": file("1")}).json()["commit"]["commit_hash"]
    push(api, {"a": file("2")}, parent_commit=first[:8])

    stale = push(api, {"a": file("3")}, parent_commit=first)
    equal = push(api, {"a": file("2")})
    empty = push(api, {})

    assert (stale.status_code, stale.json()["code"]) == (409, "stale_parent")
    assert (equal.status_code, equal.json()["code"]) == (409, "nothing_to_commit")
    assert (empty.status_code, empty.json()["code"]) == (409, "nothing_to_commit")
    assert push(api, {"a": file("3")}, parent_commit="short").status_code == 422
    assert Commit.objects.for_workspace(workspace).count() == 2


@pytest.mark.parametrize(
    "path", ["/a", "../a", "a/../b", "a//b", ".", "a/", "", "a\\b", "a\x00b", "a\nb", "a" * 501]
)
def test_path_outside_of_the_directory_is_refused(api, workspace, agent, path):
    response = push(api, {path: file("sk-hunter2")})

    assert (response.status_code, response.json()["code"]) == (422, "bad_directory")
    assert "sk-hunter2" not in response.content.decode()
    assert not Commit.objects.for_workspace(workspace).exists()


@pytest.mark.parametrize(
    "files",
    [
        {"a": file("1"), "a/b": file("2")},
        {"missing": None},
        {"big": file("x" * 1_048_577)},
        {str(n): file("") for n in range(2001)},
        {"a": {"type": "agent", "repo_handle": "unknown"}},
        {"a": {"type": "agent", "repo_handle": "coder"}},
    ],
)
def test_invalid_directory_is_refused(api, workspace, agent, files):
    response = push(api, files)

    assert (response.status_code, response.json()["code"]) == (422, "bad_directory")
    assert not Commit.objects.for_workspace(workspace).exists()


@pytest.mark.parametrize(
    "entry",
    [
        {"type": "file"},
        {"type": "skill"},
        {"type": "folder", "content": "a"},
        {"type": "file", "content": "a", "owner": "acme"},
        {"type": "skill", "repo_handle": "search", "content": "a"},
        {"type": "skill", "repo_handle": "search", "selector": {"type": "COMMIT"}},
        "text",
    ],
)
def test_invalid_entry_is_refused(api, workspace, agent, entry):
    create_prompt(workspace, "search", type="skill")

    assert push(api, {"a": entry}).status_code == 422
    assert not Commit.objects.for_workspace(workspace).exists()


def test_link_follows_its_skill_or_is_pinned(api, workspace, agent):
    create_prompt(workspace, "search", type="skill")
    skill = URL.replace("coder", "search")
    first = push(api, {"SKILL.md": file("1")}, skill).json()["commit"]
    link = {"type": "skill", "repo_handle": "search"}
    selector = {"type": "COMMIT", "commit_id": first["id"]}
    files = {
        "latest": link,
        "pinned": link | {"selector": selector},
        "pinned-by-id": link | {"owner": "acme", "commit_id": first["id"]},
    }
    assert push(api, files).status_code == 200
    second = push(api, {"SKILL.md": file("2")}, skill).json()["commit"]

    pulled = api.get(URL).json()["files"]

    assert pulled["latest"] == link | {
        "owner": "acme",
        "selector": {"type": "LATEST"},
        "commit_id": second["id"],
        "commit_hash": second["commit_hash"],
    }
    pinned = link | {
        "owner": "acme",
        "selector": selector,
        "commit_id": first["id"],
        "commit_hash": first["commit_hash"],
    }
    assert pulled["pinned"] == pulled["pinned-by-id"] == pinned
    api.delete(skill)
    assert api.get(URL).json()["files"] == {}


def test_link_to_an_unknown_commit_is_refused(api, workspace, agent):
    create_prompt(workspace, "search", type="skill")
    link = {"type": "skill", "repo_handle": "search"}
    for fields in (
        {"commit_id": str(uuid4())},
        {"commit_hash": "f" * 64},
        {"selector": {"type": "COMMIT", "commit_id": str(uuid4())}},
    ):
        assert push(api, {"a": link | fields}).json()["code"] == "bad_directory"
    assert not Commit.objects.for_workspace(workspace).exists()


def test_link_to_another_workspace_needs_a_public_skill(
    api, make_api, workspace, other_workspace, agent
):
    other_workspace.handle = "other"
    other_workspace.save()
    skill = create_prompt(other_workspace, "search", type="skill")
    theirs = make_api(other_workspace)
    push(theirs, {"SKILL.md": file("1")}, URL.replace("coder", "search"))
    link = {"type": "skill", "owner": "other", "repo_handle": "search"}

    assert push(api, {"a": link}).json()["code"] == "bad_directory"
    theirs.patch("/repos/-/search", {"is_public": True})
    assert push(api, {"a": link}).status_code == 200
    assert api.get(URL).json()["files"]["a"]["owner"] == "other"
    theirs.patch("/repos/-/search", {"is_public": False})
    assert api.get(URL).json()["files"] == {}
    assert skill.commits.count() == 1


def test_directory_is_deleted(api, workspace, agent):
    push(api, {"a": file("1")})

    assert api.delete(f"{URL}?repo_type=agent").status_code == 204
    assert api.get("/repos/-/coder").status_code == 404


@pytest.mark.parametrize("count", [1, 6])
def test_number_of_queries_does_not_grow_with_links(
    api, workspace, agent, count, django_assert_num_queries
):
    files = {}
    for number in range(count):
        handle = f"skill-{number}"
        create_prompt(workspace, handle, type="skill")
        commit = push(api, {"a": file("1")}, URL.replace("coder", handle)).json()["commit"]
        link = {"type": "skill", "repo_handle": handle}
        files |= {f"{number}": link, f"{number}-pinned": link | {"commit_id": commit["id"]}}
    push(api, files)
    api.get(URL)

    with django_assert_num_queries(5):
        assert len(api.get(URL).json()["files"]) == 2 * count


def test_public_directory_does_not_tell_of_private_skills(
    api, make_api, workspace, other_workspace, agent
):
    create_prompt(workspace, "search", type="skill")
    push(api, {"SKILL.md": file("1")}, URL.replace("coder", "search"))
    push(api, {"a": {"type": "skill", "repo_handle": "search"}, "b": file("b")})
    api.patch("/repos/-/coder", {"is_public": True})

    theirs = make_api(other_workspace).get(URL.replace("/-/", "/acme/")).json()["files"]

    assert theirs == {"b": file("b")}
    assert api.get(URL).json()["files"].keys() == {"a", "b"}


def test_number_of_changes_is_checked_before_each_link_is_looked_up(
    api, workspace, agent, monkeypatch, django_assert_max_num_queries
):
    monkeypatch.setattr(directories, "MAX_CHANGES", 50)
    link = {"type": "skill", "repo_handle": "search"}

    with django_assert_max_num_queries(40):
        refused = push(api, {str(number): link for number in range(51)})

    assert (refused.status_code, refused.json()["code"]) == (422, "bad_directory")
    assert "at most 50 files" in refused.json()["detail"]
