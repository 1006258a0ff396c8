"""Commits: hashes, parents, resolution of names, cache headers, tags and diffs."""

from __future__ import annotations

import hashlib
from uuid import uuid4

import pytest

from apps.audit.models import Entry
from apps.core.json import dumps
from apps.prompts import manifest
from apps.prompts.models import Commit, CommitTag, Repository
from apps.prompts.services import commit_tags
from tests.console.conftest import create_workspace_user, signed_in
from tests.factories.prompts import (
    create_commit,
    create_prompt,
    model_manifest,
    prompt_manifest,
)

URL = "/commits/-/helper"
TAGS = "/repos/-/helper/tags"


def push(api, template="Answer {question}", **fields):
    return api.post(URL, {"manifest": prompt_manifest(template), **fields})


def test_commit_is_created_and_pulled(api, workspace, prompt):
    created = push(api, parent_commit=None, description="first").json()["commit"]

    row = Commit.objects.for_workspace(workspace).get()
    assert created.pop("created_at") == created.pop("updated_at")
    assert created == {
        "id": str(row.pk),
        "repo_id": str(prompt.pk),
        "parent_id": None,
        "parent_commit_hash": None,
        "commit_hash": row.commit_hash,
        "manifest": prompt_manifest(),
        "manifest_sha": manifest.as_base64(row.manifest_hash),
        "description": "first",
        "full_name": None,
        "example_run_ids": [],
        "num_downloads": 0,
        "num_views": 0,
    }
    for name in ("latest", row.commit_hash, row.commit_hash[:8]):
        assert api.get(f"{URL}/{name}").json() == {
            "commit_hash": row.commit_hash,
            "manifest": prompt_manifest(),
            "examples": [],
            "description": "first",
        }
    repo = api.get("/repos/-/helper").json()["repo"]
    assert (repo["num_commits"], repo["last_commit_hash"]) == (1, row.commit_hash)


def test_commits_beyond_the_storage_of_the_workspace_are_refused(api, workspace, prompt, settings):
    push(api)
    create_prompt(workspace, "other")
    stored = Repository.objects.for_workspace(workspace).get(pk=prompt.pk).stored_bytes
    assert stored == len(dumps(prompt_manifest()))
    settings.MAX_PROMPT_STORAGE_BYTES = 2 * stored
    long = {"manifest": prompt_manifest("x" * stored)}

    refused = [api.post(URL, long), api.post("/commits/-/other", long)]

    for answer in refused:
        assert answer.status_code == 422
        assert answer.json()["code"] == "prompt_storage_full"
    assert Commit.objects.for_workspace(workspace).count() == 1
    assert api.delete("/repos/-/helper").status_code == 200
    settings.MAX_PROMPT_STORAGE_BYTES = 3 * stored
    assert api.post("/commits/-/other", long).status_code == 200


def test_commit_is_named_by_the_hash_of_content_and_parent(api, workspace, prompt):
    first = push(api, "a {question}").json()["commit"]
    second = push(api, "b {question}").json()["commit"]
    third = push(api, "a {question}").json()["commit"]
    other = create_prompt(workspace, "other")

    content = manifest.content_hash(prompt_manifest("a {question}"))
    expected = hashlib.sha256(f"commit\n{second['commit_hash']}\n{content}".encode()).hexdigest()
    assert third["commit_hash"] == expected
    assert third["commit_hash"] != first["commit_hash"]
    assert third["parent_id"] == second["id"]
    assert third["manifest_sha"] == first["manifest_sha"]
    # Equal histories have equal names, also in another repository and with keys in another order.
    reordered = dict(reversed(prompt_manifest("a {question}").items()))
    in_other = api.post("/commits/-/other", {"manifest": reordered}).json()["commit"]
    assert in_other["commit_hash"] == first["commit_hash"]
    assert list(other.commits.get().manifest) == list(reordered)


@pytest.mark.parametrize("seen", ["first", "prefix of first", "unknown", "none"])
def test_parent_that_is_not_the_head_is_a_conflict(api, workspace, prompt, seen):
    first = create_commit(prompt, "a {question}")
    second = create_commit(prompt, "b {question}")
    parent = {
        "first": first.commit_hash,
        "prefix of first": first.commit_hash[:10],
        "unknown": "f" * 64,
        "none": None,
    }[seen]

    response = push(api, "c {question}", parent_commit=parent)

    assert (response.status_code, response.json()["code"]) == (409, "stale_parent")
    assert response.json()["errors"] == [{"latest_commit": second.commit_hash}]
    assert Commit.objects.for_workspace(workspace).count() == 2


@pytest.mark.parametrize("seen", ["hash", "prefix", "latest", "absent"])
def test_parent_that_is_the_head_is_accepted(api, prompt, seen):
    head = create_commit(prompt, "a {question}")
    parents = {"hash": head.commit_hash, "prefix": head.commit_hash[:8], "latest": "latest"}
    fields = {"parent_commit": parents[seen]} if seen in parents else {}

    response = push(api, "b {question}", **fields)

    assert response.json()["commit"]["parent_commit_hash"] == head.commit_hash


def test_equal_content_is_a_conflict(api, workspace, prompt):
    create_commit(prompt)

    response = push(api)

    assert (response.status_code, response.json()["code"]) == (409, "nothing_to_commit")
    assert response["x-should-retry"] == "false"
    assert Commit.objects.for_workspace(workspace).count() == 1


def test_outsider_and_reader_cannot_commit(make_api, workspace, other_workspace, prompt):
    commit = create_commit(prompt)
    outsider, reader = make_api(other_workspace), make_api(workspace, "read")

    assert outsider.get("/commits/acme/helper").status_code == 404
    assert outsider.get(f"/commits/acme/helper/{commit.commit_hash}").status_code == 404
    assert outsider.get(f"/commits/-/helper/{commit.commit_hash}").status_code == 404
    body = {"manifest": prompt_manifest("new {question}")}
    assert outsider.post("/commits/acme/helper", body).status_code == 404
    assert reader.post(URL, body).status_code == 403
    assert reader.get(f"{URL}/latest").status_code == 200
    tag = {"tag_name": "a", "commit_id": str(commit.pk)}
    assert reader.post(TAGS, tag).status_code == 403
    assert Commit.objects.for_workspace(workspace).count() == 1


def test_commit_of_another_repository_is_not_found(api, workspace, prompt):
    create_commit(prompt)
    foreign = create_commit(create_prompt(workspace, "other"), "other {question}")

    assert api.get(f"{URL}/{foreign.commit_hash}").status_code == 404
    response = api.post(TAGS, {"tag_name": "a", "commit_id": str(foreign.pk)})
    assert (response.status_code, response.json()["code"]) == (404, "commit_not_found")
    assert not CommitTag.unscoped.exists()


def test_name_is_resolved_as_hash_before_tag(api, workspace, prompt):
    first, second = create_commit(prompt, "a {question}"), create_commit(prompt, "b {question}")
    for name in ("v1", first.commit_hash[:8], "ffffffff"):
        api.post(TAGS, {"tag_name": name, "commit_id": str(second.pk)})

    def pull(name):
        return api.get(f"{URL}/{name}").json().get("commit_hash")

    assert pull("v1") == second.commit_hash
    assert pull(first.commit_hash[:8]) == first.commit_hash
    assert pull("ffffffff") == second.commit_hash
    assert pull(first.commit_hash[:7]) is None
    assert api.get(f"{URL}/nothing").json()["code"] == "commit_not_found"


def test_prefix_of_several_hashes_is_not_found(api, workspace, prompt):
    first, second = create_commit(prompt, "a {question}"), create_commit(prompt, "b {question}")
    for commit, last in ((first, "0"), (second, "1")):
        Commit.unscoped.filter(pk=commit.pk).update(commit_hash="ab" * 20 + last * 24)

    response = api.get(f"{URL}/{'ab' * 10}")

    assert response.status_code == 404
    assert "Several commits" in response.json()["detail"]


def test_pull_of_an_empty_repository_is_not_found(api, prompt):
    assert api.get(f"{URL}/latest").json()["code"] == "commit_not_found"
    assert api.get(f"{URL}/").json() == {"commits": [], "total": 0}


def test_prompt_with_model_is_reduced_without_include_model(api, prompt):
    api.post(URL, {"manifest": model_manifest()})

    reduced = api.get(f"{URL}/latest").json()
    whole = api.get(f"{URL}/latest", include_model="true").json()
    included = api.get(f"{URL}/latest", include="model,is_draft").json()

    assert reduced["manifest"] == prompt_manifest()
    assert "model_provider" not in reduced
    assert whole["manifest"] == model_manifest()
    assert whole["model_provider"] == "ChatOpenAI"
    assert (included["manifest"], included["is_draft"]) == (model_manifest(), False)
    assert api.get(f"{URL}/latest", include="secrets").status_code == 422


def test_playground_is_pulled_as_a_sequence(api, prompt):
    playground = model_manifest() | {"id": ["langsmith", "playground", "PromptPlayground"]}
    api.post(URL, {"manifest": playground})

    pulled = api.get(f"{URL}/latest", include_model="true").json()["manifest"]

    assert pulled == model_manifest()
    assert api.get(f"{URL}/latest").json()["manifest"] == prompt_manifest()


def nest(depth):
    value = "x"
    for _ in range(depth):
        value = [value]
    return value


SECRET = "sk-hunter2-hunter2"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ([SECRET], "must be an object"),
        ({"text": SECRET}, "Manifest must have an id field"),
        (prompt_manifest() | {"id": ["os", "system"]}, "Manifest type system is not supported"),
        (prompt_manifest() | {"id": ["os", SECRET]}, "Unsupported manifest type"),
        (prompt_manifest() | {"lc": 2}, "Unsupported manifest type"),
        (prompt_manifest() | {"id": SECRET}, "Unsupported manifest type"),
        (prompt_manifest() | {"id": []}, "Unsupported manifest type"),
        (prompt_manifest() | {"type": "secret"}, "Unsupported manifest type"),
        (model_manifest() | {"kwargs": {"first": SECRET}}, "Unsupported manifest type"),
        (model_manifest() | {"kwargs": None}, "Unsupported manifest type"),
        (prompt_manifest() | {"extra": nest(150)}, "nested more than 100 levels"),
        (prompt_manifest() | {"extra": [0] * 50_001}, "more than 50000 values"),
        (prompt_manifest("x" * 1_048_576), "more than 1048576 bytes"),
    ],
)
def test_hostile_manifest_is_refused_without_an_echo(api, workspace, prompt, content, text):
    response = api.post(URL, {"manifest": content})

    assert (response.status_code, response.json()["code"]) == (400, "bad_manifest")
    assert text in response.json()["detail"]
    assert SECRET not in response.content.decode()
    assert not Commit.objects.for_workspace(workspace).exists()


def test_deeply_nested_body_is_refused(api, prompt):
    response = api.client.post(
        URL, '{"manifest":' + "[" * 100_000 + "]" * 100_000 + "}", content_type="application/json"
    )

    assert response.status_code == 422


def test_manifest_is_returned_as_it_was_written(api, prompt):
    content = prompt_manifest("{question} \u0000 é 😀") | {"note": "first", "a": 1e16, "b": 10**18}

    api.post(URL, {"manifest": content})

    pulled = api.get(f"{URL}/latest")
    assert pulled.json()["manifest"] == content
    assert list(pulled.json()["manifest"]) == list(content)


def test_history_is_listed_newest_first(api, prompt):
    hashes = [create_commit(prompt, f"{n} {{question}}").commit_hash for n in range(25)]
    hashes.reverse()

    def listed(**query):
        return [row["commit_hash"] for row in api.get(f"{URL}/", **query).json()["commits"]]

    assert listed() == hashes[:20]
    assert listed(limit=100) == hashes
    assert listed(limit=2, offset=23) == hashes[23:]
    assert api.get(URL).json()["total"] == 25
    assert len(listed(limit=100, include_model="True")) == 20
    (newest,) = api.get(URL, limit=1, include_model="true").json()["commits"]
    assert newest["manifest"] == prompt_manifest("24 {question}")
    (newest,) = api.get(URL, limit=1, include_stats="false").json()["commits"]
    assert (newest["manifest"], newest["num_views"]) == (None, None)
    api.post(TAGS, {"tag_name": "v1", "commit_id": newest["id"]})
    assert listed(tag="v1") == hashes[:1]
    assert listed(tag="v2") == []


@pytest.mark.parametrize("count", [2, 12])
def test_number_of_queries_of_the_history_does_not_grow(
    api, prompt, count, django_assert_num_queries
):
    for number in range(count):
        create_commit(prompt, f"{number} {{question}}")
    api.get(URL)

    with django_assert_num_queries(3):
        assert len(api.get(URL).json()["commits"]) == count


def test_pull_takes_three_queries(api, prompt, django_assert_num_queries):
    create_commit(prompt)
    api.get(f"{URL}/latest")

    with django_assert_num_queries(3):
        api.get(f"{URL}/latest")


def test_pull_is_revalidated_by_its_etag(api, prompt):
    commit = create_commit(prompt)
    first = api.get(f"{URL}/latest")
    pinned = api.get(f"{URL}/{commit.commit_hash}")

    assert first["Cache-Control"] == "private, no-cache"
    assert pinned["Cache-Control"] == "private, max-age=3600"
    assert "X-Api-Key" in first["Vary"]
    assert first["ETag"] == pinned["ETag"] == f'"{commit.commit_hash[:32]}"'
    headers = {"If-None-Match": f'"x", W/{first["ETag"]}'}
    unchanged = api.client.get(f"{URL}/latest", headers=headers)
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    assert unchanged["ETag"] == first["ETag"]
    with_model = api.client.get(f"{URL}/latest?include_model=true", headers=headers)
    assert with_model.status_code == 200
    create_commit(prompt, "new {question}")
    assert api.client.get(f"{URL}/latest", headers=headers).status_code == 200


def test_tag_moves_and_each_move_is_audited(api, workspace, prompt):
    first, second = create_commit(prompt, "a {question}"), create_commit(prompt, "b {question}")
    body = {"tag_name": "production", "commit_id": str(first.pk)}

    created = api.post(TAGS, body).json()
    repeated = api.post(TAGS, body).json()
    moved = api.post(TAGS, body | {"commit_id": str(second.pk)}).json()
    moved_back = api.patch(f"{TAGS}/production", {"commit_id": str(first.pk)}).json()

    assert (created["tag_name"], created["commit_hash"]) == ("production", first.commit_hash)
    assert created["repo_id"] == str(prompt.pk)
    assert repeated == created
    assert (moved["id"], moved["commit_hash"]) == (created["id"], second.commit_hash)
    assert moved_back["commit_id"] == str(first.pk)
    assert api.get(f"{URL}/production").json()["commit_hash"] == first.commit_hash
    assert api.get(f"{TAGS}/production").json() == moved_back
    assert api.get(TAGS).json() == [moved_back]
    assert api.get("/repos/-/helper").json()["repo"]["commit_tags"] == ["production"]
    assert api.delete(f"{TAGS}/production").status_code == 204
    assert api.delete(f"{TAGS}/production").json()["code"] == "commit_tag_not_found"
    entries = Entry.objects.filter(target_kind="prompt_tag").order_by("at", "pk")
    hashes = [
        (e.action, *((values or {}).get("commit") for values in (e.before, e.after)))
        for e in entries
    ]
    assert hashes == [
        ("prompt_tag.set", None, first.commit_hash),
        ("prompt_tag.set", first.commit_hash, second.commit_hash),
        ("prompt_tag.set", second.commit_hash, first.commit_hash),
        ("prompt_tag.deleted", first.commit_hash, None),
    ]


def test_history_of_a_tag_has_each_move_with_its_author(
    api, workspace, prompt, make_api, other_workspace
):
    first, second = create_commit(prompt, "a {question}"), create_commit(prompt, "b {question}")
    url = f"{TAGS}/production/history"
    body = {"tag_name": "production", "commit_id": str(first.pk)}

    assert api.get(url).json()["code"] == "commit_tag_not_found"
    tag = api.post(TAGS, body).json()
    api.post(TAGS, body)  # moves nothing
    user = create_workspace_user(workspace, "editor")
    signed_in(user).post(
        f"/o/{workspace.pk}/prompts/p/helper/commits/{second.commit_hash}/tags",
        {"name": "production"},
    )
    api.delete(f"{TAGS}/production")

    history = api.get(url).json()
    assert history["total"] == 3
    deleted, moved, created = history["transitions"]
    assert (created["from_commit_id"], created["from_commit_hash"]) == (None, None)
    assert (created["to_commit_id"], created["to_commit_hash"]) == (
        str(first.pk),
        first.commit_hash,
    )
    assert (created["repo_id"], created["tag_name"]) == (str(prompt.pk), "production")
    assert created["performed_by_name"] is None
    assert created["created_at"][:16] == tag["created_at"][:16]
    assert (moved["from_commit_hash"], moved["to_commit_hash"]) == (
        first.commit_hash,
        second.commit_hash,
    )
    assert (moved["performed_by"], moved["performed_by_name"]) == (str(user.pk), user.display_name)
    assert (deleted["from_commit_hash"], deleted["to_commit_hash"]) == (second.commit_hash, None)
    second_page = api.get(url, limit="1", offset="1").json()
    assert second_page == {"transitions": [moved], "total": 3}
    assert api.get(url, limit="101").status_code == 422
    assert make_api(other_workspace).get(url).status_code == 404


def test_public_history_shows_no_person_to_another_workspace(
    workspace, prompt, make_api, other_workspace
):
    user = create_workspace_user(workspace, "editor")
    commit = create_commit(prompt)
    commit_tags.set_tag(
        repository=prompt, name="production", commit_id=commit.pk, author_id=user.pk
    )
    Repository.objects.for_workspace(workspace).update(is_public=True)

    outsider = make_api(other_workspace)
    (move,) = outsider.get("/repos/acme/helper/tags/production/history").json()["transitions"]

    assert move["to_commit_hash"] == commit.commit_hash
    assert (move["performed_by"], move["performed_by_name"]) == (None, None)


def test_history_keeps_the_newest_moves(prompt, monkeypatch):
    monkeypatch.setattr(commit_tags, "MAX_MOVES", 3)
    pair = [create_commit(prompt, "a {question}"), create_commit(prompt, "b {question}")]

    for number in range(6):
        commit_tags.set_tag(repository=prompt, name="production", commit_id=pair[number % 2].pk)
    commit_tags.set_tag(repository=prompt, name="staging", commit_id=pair[0].pk)

    assert commit_tags.moves_of(prompt, "production").count() == 2
    assert commit_tags.moves_of(prompt, "staging").count() == 1


@pytest.mark.parametrize("name", ["latest", "LATEST", "", "a b", "a/b", "-a", "a" * 101, "é"])
def test_invalid_tag_name_is_rejected(api, prompt, name):
    commit = create_commit(prompt)

    response = api.post(TAGS, {"tag_name": name, "commit_id": str(commit.pk)})

    assert response.status_code == 422
    assert not CommitTag.unscoped.exists()


def test_unknown_tag_is_not_moved(api, prompt):
    commit = create_commit(prompt)

    assert api.patch(f"{TAGS}/a", {"commit_id": str(commit.pk)}).status_code == 404
    assert api.post(TAGS, {"tag_name": "a", "commit_id": str(uuid4())}).status_code == 404
    assert not CommitTag.unscoped.exists()


def test_commits_are_compared(api, prompt):
    first = create_commit(prompt, "a {question}")
    second = create_commit(prompt, "b {question}")
    api.post(URL, {"manifest": prompt_manifest("b {question}") | {"name": "n"}})

    template = "/kwargs/messages/0/kwargs/prompt/kwargs/template"
    assert api.get(f"{URL}/{second.commit_hash}/diff").json() == {
        "commit_hash": second.commit_hash,
        "base_commit_hash": first.commit_hash,
        "changes": [
            {
                "path": template,
                "type": "changed",
                "before": "a {question}",
                "after": "b {question}",
            }
        ],
    }
    changes = api.get(f"{URL}/latest/diff", base=first.commit_hash[:8]).json()["changes"]
    assert [(c["path"], c["type"]) for c in changes] == [
        (template, "changed"),
        ("/name", "added"),
    ]
    reverse = api.get(f"{URL}/{second.commit_hash}/diff", base="latest").json()["changes"]
    assert reverse == [{"path": "/name", "type": "removed", "before": "n", "after": None}]
    initial = api.get(f"{URL}/{first.commit_hash}/diff").json()
    assert (initial["base_commit_hash"], len(initial["changes"])) == (None, 4)
    assert api.get(f"{URL}/latest/diff", base="unknown").status_code == 404


def test_manifest_is_not_committed_to_a_directory(api, workspace):
    create_prompt(workspace, "coder", type="agent")

    response = api.post("/commits/-/coder", {"manifest": prompt_manifest()})

    assert (response.status_code, response.json()["code"]) == (400, "wrong_repository_type")
