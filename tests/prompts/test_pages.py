"""Pages of prompts: list, messages, editing, commits, differences, tags, runs and settings."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime

import pytest
from django.urls import reverse

from apps.audit.models import Entry
from apps.prompts.models import Commit, CommitTag, Repository
from apps.prompts.services import commits
from tests.console.conftest import create_workspace_user, signed_in
from tests.factories.prompts import (
    create_commit,
    create_prompt,
    model_manifest,
    prompt_manifest,
)
from tests.factories.tracing import ingest, read_run, wire_run


@pytest.fixture
def url(workspace):
    return f"/o/{workspace.pk}/prompts"


@pytest.fixture
def reader(workspace):
    return signed_in(create_workspace_user(workspace, "viewer"))


def text_of(response):
    """The text of the page without markup, with single spaces."""
    content = re.sub(r"<(script|style).*?</\1>", "", response.content.decode(), flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", content))


def messages_body(*rows, parent="", template_format="f-string", **fields):
    """The fields of the editor with these messages."""
    body = {
        "parent": parent,
        "template_format": template_format,
        "description": "",
        "m-TOTAL_FORMS": str(len(rows)),
        "m-INITIAL_FORMS": "0",
        **fields,
    }
    for index, (role, text) in enumerate(rows):
        body |= {f"m-{index}-role": role, f"m-{index}-text": text}
    return body


def test_list_shows_search_tabs_and_empty_state(page, workspace, url):
    assert "No prompts yet" in text_of(page.get(url))
    create_prompt(workspace, "joker", description="Tells jokes", tags=["fun"])
    create_prompt(workspace, "coder", type="agent")

    text = text_of(page.get(url))

    assert "joker fun Tells jokes" in text
    assert "coder" not in text
    assert "coder" in text_of(page.get(f"{url}?type=agent"))
    assert "joker" in text_of(page.get(f"{url}?q=jok"))
    assert "No match" in text_of(page.get(f"{url}?q=unknown"))
    assert page.get(f"{url}?type=folder").status_code == 404


def test_prompt_is_created_and_its_messages_are_committed(page, workspace, url):
    created = page.post(f"{url}/new", {"handle": "helper", "description": "Helps", "tags": "a, b"})
    assert created["Location"] == f"{url}/p/helper/edit"
    body = messages_body(
        ("system", "Speak {language}. {{literally}}"),
        ("placeholder", "history"),
        ("human", "{question}"),
        ("ai", ""),
        description="first",
    )

    saved = page.post(created["Location"], body)

    assert saved["Location"] == f"{url}/p/helper"
    repository = Repository.objects.for_workspace(workspace).get()
    assert repository.tags == ["a", "b"]
    content = repository.head.manifest
    assert content["kwargs"]["input_variables"] == ["history", "language", "question"]
    assert [node["id"][-1] for node in content["kwargs"]["messages"]] == [
        "SystemMessagePromptTemplate", "MessagesPlaceholder", "HumanMessagePromptTemplate",
    ]  # fmt: skip
    assert repository.head.description == "first"
    shown = text_of(page.get(f"{url}/p/helper"))
    assert "Speak {language} . {{literally}}" in shown
    assert "Messages of history" in shown


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning")
@pytest.mark.filterwarnings("ignore:The function `load`")
def test_committed_messages_load_in_langchain(page, workspace, url):
    from langchain_core.load import load

    create_prompt(workspace, "helper")
    page.post(
        f"{url}/p/helper/edit",
        messages_body(("human", "Hi {{name}}"), template_format="mustache"),
    )

    prompt = load(Repository.objects.for_workspace(workspace).get().head.manifest)

    assert prompt.invoke({"name": "you"}).to_messages()[0].content == "Hi you"


def test_edit_keeps_the_bound_model(page, workspace, prompt, url):
    commit = commits.create_prompt_commit(repository=prompt, content=model_manifest())
    form = page.get(f"{url}/p/helper/edit")
    assert "The bound model, ChatOpenAI , stays" in text_of(form)

    page.post(
        f"{url}/p/helper/edit",
        messages_body(("human", "New {question}"), parent=commit.commit_hash),
    )

    prompt.refresh_from_db()
    manifest = prompt.head.manifest
    assert manifest["kwargs"]["last"] == model_manifest()["kwargs"]["last"]
    assert "New {question}" in text_of(page.get(f"{url}/p/helper"))


MALFORMED = [
    ([("human", "{unclosed")], "f-string", "expected &#x27;}&#x27;"),
    ([("human", "{a.b}")], "f-string", "Braces must contain"),
    ([("human", "{0}")], "f-string", "Braces must contain"),
    ([("human", "{{a")], "mustache", "without its"),
    ([("placeholder", "two words")], "f-string", "name of one variable"),
    ([("human", "")], "f-string", "at least one message"),
    ([("robot", "a")], "f-string", "robot"),
]


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_messages_are_refused(page, workspace, prompt, url, case):
    rows, template_format, problem = case

    response = page.post(
        f"{url}/p/helper/edit", messages_body(*rows, template_format=template_format)
    )

    assert response.status_code == 422
    assert problem in response.content.decode()
    assert not Commit.objects.for_workspace(workspace).exists()


def test_add_shows_one_more_message_and_commits_nothing(page, workspace, prompt, url):
    response = page.post(f"{url}/p/helper/edit", messages_body(("system", "Kept"), add="1"))

    assert response.status_code == 200
    content = response.content.decode()
    assert "Kept" in content
    assert 'name="m-1-text"' in content
    assert not Commit.objects.for_workspace(workspace).exists()


def test_stale_editor_is_refused(page, workspace, prompt, url):
    first = create_commit(prompt, "a {question}")
    create_commit(prompt, "b {question}")

    response = page.post(
        f"{url}/p/helper/edit",
        messages_body(("human", "mine"), parent=first.commit_hash),
    )

    assert response.status_code == 422
    assert "has a newer commit" in response.content.decode()
    assert Commit.objects.for_workspace(workspace).count() == 2


def test_prompt_that_is_not_plain_text_is_edited_as_json(page, workspace, prompt, url):
    content = prompt_manifest()
    content["kwargs"]["partial_variables"] = {"a": "b"}
    commit = commits.create_prompt_commit(repository=prompt, content=content)
    form = page.get(f"{url}/p/helper/edit")
    assert 'name="manifest"' in form.content.decode()

    body = {"parent": commit.commit_hash, "description": ""}
    bad = page.post(f"{url}/p/helper/edit", body | {"manifest": "{"})
    other = page.post(f"{url}/p/helper/edit", body | {"manifest": '{"id": ["x"]}'})
    assert (bad.status_code, other.status_code) == (422, 422)
    assert "not valid JSON" in bad.content.decode()
    assert "Unsupported manifest type" in other.content.decode()
    assert Commit.objects.for_workspace(workspace).count() == 1
    changed = json.dumps(content).replace("Answer", "Reply to")
    page.post(f"{url}/p/helper/edit", body | {"manifest": changed})
    assert "Reply to" in page.get(f"{url}/p/helper").content.decode()


def test_hostile_texts_are_escaped(page, workspace, prompt, url):
    create_commit(prompt, "<script>alert(1)</script> {question}")
    page.get(f"{url}/p/helper")

    for path in ("", "/edit", "/commits", "/commits/latest/diff"):
        content = page.get(f"{url}/p/helper{path}").content.decode()
        assert "<script>alert(1)" not in content, path


def test_commits_and_differences_are_shown(page, workspace, prompt, url):
    first = create_commit(prompt, "a {question}")
    second = create_commit(prompt, "b {question}")

    history = text_of(page.get(f"{url}/p/helper/commits"))
    diff = text_of(page.get(f"{url}/p/helper/commits/{second.commit_hash}/diff"))
    from_nothing = text_of(page.get(f"{url}/p/helper/commits/{first.commit_hash}/diff"))
    backwards = page.get(
        f"{url}/p/helper/commits/{first.commit_hash}/diff?base={second.commit_hash}"
    )

    assert history.index(second.commit_hash[:8]) < history.index(first.commit_hash[:8])
    assert "removed: a {question}" in diff
    assert "added: b {question}" in diff
    assert "added: a {question}" in from_nothing
    assert "added: a {question}" in text_of(backwards)
    assert page.get(f"{url}/p/helper/commits/unknown/diff").status_code == 404


def test_tag_is_set_moved_and_removed(page, workspace, prompt, url):
    first, second = create_commit(prompt, "a {question}"), create_commit(prompt, "b {question}")

    def post(commit, **fields):
        return page.post(f"{url}/p/helper/commits/{commit.commit_hash}/tags", fields, follow=True)

    assert f"production is now commit {first.commit_hash[:8]}" in text_of(
        post(first, name="production")
    )
    post(second, name="production")
    assert CommitTag.objects.for_workspace(workspace).get().commit == second
    assert "An earlier commit" in text_of(page.get(f"{url}/p/helper?commit={first.commit_hash}"))
    assert "b {question}" in page.get(f"{url}/p/helper?commit=production").content.decode().replace(
        '<span class="prompt-variable">', ""
    ).replace("</span>", "")
    assert "A tag has 1 to 100" in text_of(post(first, name="no spaces"))
    post(second, name="production", delete="1")
    assert not CommitTag.objects.for_workspace(workspace).exists()
    history = text_of(page.get(f"{url}/p/helper/tags/production"))
    hashes = [commit.commit_hash[:8] for commit in (first, second)]
    assert f"{hashes[1]} Removed" in history
    assert f"{hashes[0]} {hashes[1]}" in history
    assert f"New tag {hashes[0]}" in history
    assert "Older" not in history
    assert page.get(f"{url}/p/helper/tags/never").status_code == 404


def test_runs_that_used_a_commit_are_listed(page, workspace, prompt, url):
    first, second = create_commit(prompt, "a {question}"), create_commit(prompt, "b {question}")
    for name, commit in (("with first", first), ("with second", second)):
        metadata = {
            "lc_hub_owner": "-",
            "lc_hub_repo": "helper",
            "lc_hub_commit_hash": commit.commit_hash,
        }
        run = wire_run(name=name, extra={"metadata": metadata}, start_time=_now())
        ingest(workspace, run)
    ingest(workspace, wire_run(name="unrelated", start_time=_now()))

    every = text_of(page.get(f"{url}/p/helper/runs"))
    one = text_of(page.get(f"{url}/p/helper/runs?commit={first.commit_hash[:12]}"))

    assert "with first" in every
    assert "with second" in every
    assert "unrelated" not in every
    assert "with first" in one
    assert "with second" not in one


def test_run_page_links_the_commit_and_its_page_links_the_runs(page, workspace, prompt, url):
    commit = create_commit(prompt, "a {question}")
    names = {"lc_hub_owner": "-", "lc_hub_repo": "helper", "lc_hub_commit_hash": commit.commit_hash}
    linked = wire_run(name="linked", extra={"metadata": names}, start_time=_now())
    foreign = wire_run(
        name="foreign", extra={"metadata": names | {"lc_hub_owner": "other"}}, start_time=_now()
    )
    unknown = wire_run(
        name="unknown",
        extra={"metadata": names | {"lc_hub_commit_hash": "0" * 64}},
        start_time=_now(),
    )
    for run in (linked, foreign, unknown):
        ingest(workspace, run)
    commit_url = f"{url}/p/helper?commit={commit.commit_hash[:12]}"

    pages = [
        page.get(_run_url(workspace, run)).content.decode() for run in (linked, foreign, unknown)
    ]

    assert [commit_url in content for content in pages] == [True, False, False]
    assert f"helper:{commit.commit_hash[:8]}" in pages[0]
    runs_url = f"{url}/p/helper/runs?commit={commit.commit_hash[:12]}"
    assert runs_url in page.get(commit_url).content.decode()


def _run_url(workspace, run):
    project_id = read_run(workspace, run["id"]).row.project_id
    return reverse("trace-detail", args=[workspace.pk, project_id, run["id"]])


def _now():
    return datetime.now(UTC).isoformat()


def test_settings_are_saved_and_the_prompt_is_deleted(page, workspace, prompt, url):
    body = {"description": "d", "tags": "x", "readme": "# R", "is_public": "on"}

    assert page.post(f"{url}/p/helper/settings", body).status_code == 302
    prompt.refresh_from_db()
    assert (prompt.description, prompt.tags, prompt.is_public) == ("d", ["x"], True)
    assert page.post(f"{url}/p/helper/delete")["Location"] == url
    assert not Repository.objects.for_workspace(workspace).exists()
    assert Entry.objects.filter(action="prompt.deleted").count() == 1


def test_reader_sees_no_actions_and_cannot_change(reader, workspace, prompt, url):
    commit = create_commit(prompt)

    shown = reader.get(f"{url}/p/helper").content.decode()

    assert "Tag this commit" not in shown
    assert f"{url}/p/helper/edit" not in shown
    for path in ("new", "p/helper/edit", "p/helper/settings", "p/helper/delete"):
        assert reader.post(f"{url}/{path}", {}).status_code == 403
    tag_url = f"{url}/p/helper/commits/{commit.commit_hash}/tags"
    assert reader.post(tag_url, {"name": "a"}).status_code == 403
    assert not CommitTag.unscoped.exists()


def test_files_of_a_directory_are_shown_with_their_differences(page, api, workspace, url):
    create_prompt(workspace, "coder", type="agent")
    path = "/v1/platform/hub/repos/-/coder/directories/commits"
    for text in ("first text", "second text"):
        api.post(path, {"files": {"AGENTS.md": {"type": "file", "content": text}}})

    shown = text_of(page.get(f"{url}/p/coder"))
    diff = text_of(page.get(f"{url}/p/coder/commits/latest/diff"))

    assert "AGENTS.md" in shown
    assert "second text" in shown
    assert "removed: first text" in diff
    assert page.get(f"{url}/p/coder/edit").status_code == 404


def test_addresses_of_the_clients_lead_to_the_page(page, workspace, prompt):
    commit = create_commit(prompt)

    response = page.get(
        f"/prompts/helper/{commit.commit_hash[:8]}?organizationId={workspace.pk}", follow=True
    )

    assert response.status_code == 200
    assert commit.commit_hash in response.content.decode()
    assert page.get("/prompts/helper/latest").status_code == 404


@pytest.mark.parametrize("count", [2, 12])
def test_number_of_queries_does_not_grow(page, workspace, url, count, django_assert_num_queries):
    prompts = [create_prompt(workspace, f"prompt-{n}") for n in range(count)]
    for number in range(count):
        create_commit(prompts[0], f"{number} {{question}}")
    paths = {"": 7, "/p/prompt-0": 9, "/p/prompt-0/commits": 8}
    for path in paths:
        page.get(url + path)

    for path, queries in paths.items():
        with django_assert_num_queries(queries):
            assert page.get(url + path).status_code == 200, path
