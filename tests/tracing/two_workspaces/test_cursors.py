"""A cursor is a place in one's own list: another's, a changed or an invented one opens nothing."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.tracing.models import Project
from tests.factories.tracing import ingest, wire_run
from tests.tracing.fuzzing import often
from tests.tracing.two_workspaces.walking import client_of

THREADS = ["thread a", "thread b", "thread c"]


@dataclass(frozen=True)
class Listing:
    """A list that leads on by cursors; `{project}` and `{token}` are the asker's."""

    method: str
    path: str
    said: dict[str, Any]
    name: str = "cursor"
    answer: tuple[str, ...] = ("next_cursor",)
    """Where in the answer the next cursor stands."""


NAMES = {"page_size": 1, "selects": ["NAME"]}
OF_FIRST = ("cursors", "next")
LISTINGS = [
    Listing("post", "/runs/query", {"session": ["{project}"], "limit": 1}, answer=OF_FIRST),
    Listing("post", "/v2/runs/query", {"project_ids": ["{project}"], **NAMES}),
    Listing("post", "/v2/traces/query", {"project_id": "{project}", **NAMES}),
    Listing("post", "/v2/threads/query", {"project_id": "{project}", "page_size": 1}),
    Listing("get", "/v2/threads/thread a/traces", {"project_id": "{project}", **NAMES}),
    Listing("get", "/v2/sessions", {"page_size": 1}),
    Listing("post", "/public/{token}/runs/query", {"limit": 1}, answer=OF_FIRST),
]
# Pages lead on by links; what stands there as `after` is the store's cursor, or a project's place.
PAGES = [
    ("/o/{workspace}/projects", "after"),
    ("/o/{workspace}/projects/p/{project}", "after"),
    ("/o/{workspace}/projects/p/{project}/thread?thread=thread+a", "after"),
    ("/o/{workspace}/projects/p/{project}/threads", "page"),
    ("/o/{workspace}/settings/ingest-log", "page"),
    ("/o/{workspace}/exports", "from"),
]
ODD = [
    "0001-01-01T00:00:00+05:00~00000000-0000-0000-0000-000000000001",
    "9999-12-31T23:59:59-05:00~00000000-0000-0000-0000-000000000001",
    "2026-01-01~x",
    "~",
    "~~",
    "\x00",
    "9" * 5000,
    "-1",
    *(
        base64.urlsafe_b64encode(text).decode().rstrip("=")
        for text in (
            b"[" * 10_000,
            b"9" * 5000,
            b"\xff\xfe",
            b'["2026-01-01T00:00:00+00:00", true]',
            b'["2026-01-01T00:00:00+00:00", 1e400]',
            b'["2026-01-01T00:00:00+00:00", 0.5]',
            b'["2026-01-01T00:00:00+00:00", NaN]',
            b'["0001-01-01T00:00:00+05:00", 0]',
            b'["9999-12-31T23:59:59-05:00", 0]',
            b'[["a"], 0]',
            b"{}",
            b"null",
            b"\x7f" + b"\xff" * 23,
            b"\x80" + b"\x00" * 23,
            b"\x00" * 24,
        )
    ),
]


class Side:
    """A workspace with a project of three threads, a key, somebody signed in, and a link."""

    def __init__(self, workspace, word):
        self.workspace, self.word = workspace, word
        self.api = client_of(workspace, signed_in=False)
        self.browser = client_of(workspace, signed_in=True)
        roots = [
            wire_run(session_name=f"{word} {number}", name=word, inputs={"said": word})
            for number in range(2)
        ]
        roots += [
            wire_run(
                session_name=word,
                name=word,
                inputs={"said": word},
                extra={"metadata": {"thread_id": thread}},
            )
            for thread in [*THREADS, "thread a"]
        ]
        ingest(workspace, *roots, wire_run(roots[-1], name=word))
        self.project = Project.objects.for_workspace(workspace).get(name=word).pk
        put = self.api.put(f"/runs/{roots[-1]['id']}/share", {}, content_type="application/json")
        self.token = put.json()["share_token"]

    def fill(self, text):
        about = {"project": self.project, "token": self.token, "workspace": self.workspace.pk}
        for name, value in about.items():
            text = text.replace("{" + name + "}", str(value))
        return text

    def page(self, listing, cursor=None):
        said = json.loads(self.fill(json.dumps(listing.said)))
        if cursor is not None:
            said[listing.name] = cursor
        path = self.fill(listing.path)
        if listing.method == "get":
            return self.api.get(path, said)
        return self.api.post(path, json.dumps(said), content_type="application/json")

    def look(self, path, name, cursor):
        address, _, query = self.fill(path).partition("?")
        said = dict(pair.split("=", 1) for pair in query.split("&") if pair)
        return self.browser.get(address, {**said, name: cursor})


@pytest.fixture
def theirs(holder):
    return Side(holder, "unspeakable")


@pytest.fixture
def ours(asker):
    return Side(asker, "harmless")


def next_of(listing, response):
    found = response.json()
    for name in listing.answer:
        found = found[name]
    return found


def well(response):
    """Whether it is refused as broken, or a page of one's own."""
    assert response.status_code in {200, 400, 422}, (response.status_code, response.content[:300])
    assert b"unspeakable" not in response.content
    return True


@pytest.mark.parametrize("listing", LISTINGS, ids=lambda one: one.path)
def test_anothers_cursor_shows_ones_own_rows_or_is_refused(theirs, ours, listing):
    first = theirs.page(listing)
    assert first.status_code == 200, first.content
    cursor = next_of(listing, first)
    assert cursor

    for one in (cursor, f"~{cursor}"):
        assert well(ours.page(listing, one))
    assert b"unspeakable" in theirs.page(listing, cursor).content


@pytest.mark.parametrize("listing", LISTINGS, ids=lambda one: one.path)
def test_a_changed_cursor_shows_ones_own_rows_or_is_refused(theirs, ours, listing):
    cursor = next_of(listing, theirs.page(listing))

    for place in range(0, len(cursor), 4):
        other = "A" if cursor[place] != "A" else "Q"
        assert well(ours.page(listing, cursor[:place] + other + cursor[place + 1 :]))
        assert well(ours.page(listing, cursor[:place]))


@pytest.mark.parametrize("listing", LISTINGS, ids=lambda one: one.path)
def test_an_odd_cursor_is_refused(ours, listing):
    for cursor in ODD:
        assert well(ours.page(listing, cursor)), cursor


@pytest.mark.parametrize("page", PAGES, ids=lambda one: one[0])
def test_a_page_that_is_entered_in_an_odd_place_is_refused_or_ones_own(theirs, ours, page):
    given = [next_of(listing, theirs.page(listing)) for listing in LISTINGS]

    for cursor in [*ODD, *given]:
        response = ours.look(*page, cursor)
        assert response.status_code in {200, 400, 404, 422}, cursor
        assert b"unspeakable" not in response.content, cursor


@often(60)
@given(
    cursor=st.text(max_size=40)
    | st.binary(max_size=40).map(lambda some: base64.urlsafe_b64encode(some).decode())
    | st.tuples(st.datetimes(), st.integers()).map(
        lambda some: base64.urlsafe_b64encode(
            json.dumps([some[0].isoformat() + "Z", some[1]]).encode()
        ).decode()
    ),
    place=st.integers(0, len(LISTINGS) - 1),
)
def test_any_text_is_a_cursor_or_is_refused(ours, cursor, place):
    assert well(ours.page(LISTINGS[place], cursor))
