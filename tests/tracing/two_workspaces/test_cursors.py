"""Foreign, changed and invented cursors open no list of another workspace."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.tracing.models import Project
from tests.examples import fuzz_settings
from tests.factories.tracing import ingest, wire_run
from tests.tracing.two_workspaces.route_client import create_client

pytestmark = pytest.mark.exhaustive

THREADS = ["thread a", "thread b", "thread c"]


@dataclass(frozen=True)
class Listing:
    """A list that is paged by cursors; `{project}` and `{token}` belong to the requester."""

    method: str
    path: str
    params: dict[str, Any]
    name: str = "cursor"
    cursor_path: tuple[str, ...] = ("next_cursor",)
    """The path of the next cursor in the response."""


NAMES = {"page_size": 1, "selects": ["NAME"]}
OF_FIRST = ("cursors", "next")
LISTINGS = [
    Listing("post", "/runs/query", {"session": ["{project}"], "limit": 1}, cursor_path=OF_FIRST),
    Listing("post", "/v2/runs/query", {"project_ids": ["{project}"], **NAMES}),
    Listing("post", "/v2/traces/query", {"project_id": "{project}", **NAMES}),
    Listing("post", "/v2/threads/query", {"project_id": "{project}", "page_size": 1}),
    Listing("get", "/v2/threads/thread a/traces", {"project_id": "{project}", **NAMES}),
    Listing("get", "/v2/sessions", {"page_size": 1}),
    Listing("post", "/public/{token}/runs/query", {"limit": 1}, cursor_path=OF_FIRST),
]
# Pages are paged by links, whose `after` is a cursor of the store or a position of a project.
PAGES = [
    ("/o/{workspace}/projects", "after"),
    ("/o/{workspace}/projects/p/{project}", "after"),
    ("/o/{workspace}/projects/p/{project}/thread?thread=thread+a", "after"),
    ("/o/{workspace}/projects/p/{project}/threads", "page"),
    ("/o/{workspace}/settings/ingest-log", "page"),
    ("/o/{workspace}/exports", "from"),
]
MALFORMED_CURSORS = [
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


class Tenant:
    """A workspace with a project of three threads, a key, a signed-in user and a public link."""

    def __init__(self, workspace, word):
        self.workspace, self.word = workspace, word
        self.api = create_client(workspace, signed_in=False)
        self.browser = create_client(workspace, signed_in=True)
        roots = [
            wire_run(session_name=f"{word} {number}", name=word, inputs={"text": word})
            for number in range(2)
        ]
        roots += [
            wire_run(
                session_name=word,
                name=word,
                inputs={"text": word},
                extra={"metadata": {"thread_id": thread}},
            )
            for thread in [*THREADS, "thread a"]
        ]
        ingest(workspace, *roots, wire_run(roots[-1], name=word))
        self.project = Project.objects.for_workspace(workspace).get(name=word).pk
        put = self.api.put(f"/runs/{roots[-1]['id']}/share", {}, content_type="application/json")
        self.token = put.json()["share_token"]

    def fill(self, text):
        values = {"project": self.project, "token": self.token, "workspace": self.workspace.pk}
        for name, value in values.items():
            text = text.replace("{" + name + "}", str(value))
        return text

    def read_list(self, listing, cursor=None):
        params = json.loads(self.fill(json.dumps(listing.params)))
        if cursor is not None:
            params[listing.name] = cursor
        path = self.fill(listing.path)
        if listing.method == "get":
            return self.api.get(path, params)
        return self.api.post(path, json.dumps(params), content_type="application/json")

    def open_page(self, path, name, cursor):
        address, _, query = self.fill(path).partition("?")
        params = dict(pair.split("=", 1) for pair in query.split("&") if pair)
        return self.browser.get(address, {**params, name: cursor})


@pytest.fixture
def owner_tenant(owner):
    return Tenant(owner, "unspeakable")


@pytest.fixture
def requester_tenant(requester):
    return Tenant(requester, "harmless")


def next_cursor(listing, response):
    value = response.json()
    for name in listing.cursor_path:
        value = value[name]
    return value


def check_no_leak(response):
    """Assert that the response is a rejection or a page of the requester's own rows."""
    assert response.status_code in {200, 400, 422}, (response.status_code, response.content[:300])
    assert b"unspeakable" not in response.content
    return True


@pytest.mark.parametrize("listing", LISTINGS, ids=lambda listing: listing.path)
def test_a_foreign_cursor_shows_own_rows_or_is_rejected(owner_tenant, requester_tenant, listing):
    first = owner_tenant.read_list(listing)
    assert first.status_code == 200, first.content
    cursor = next_cursor(listing, first)
    assert cursor

    for foreign_cursor in (cursor, f"~{cursor}"):
        assert check_no_leak(requester_tenant.read_list(listing, foreign_cursor))
    assert b"unspeakable" in owner_tenant.read_list(listing, cursor).content


@pytest.mark.parametrize("listing", LISTINGS, ids=lambda listing: listing.path)
def test_a_changed_cursor_shows_own_rows_or_is_rejected(owner_tenant, requester_tenant, listing):
    cursor = next_cursor(listing, owner_tenant.read_list(listing))

    for index in range(0, len(cursor), 4):
        character = "A" if cursor[index] != "A" else "Q"
        assert check_no_leak(
            requester_tenant.read_list(listing, cursor[:index] + character + cursor[index + 1 :])
        )
        assert check_no_leak(requester_tenant.read_list(listing, cursor[:index]))


@pytest.mark.parametrize("listing", LISTINGS, ids=lambda listing: listing.path)
def test_a_malformed_cursor_is_rejected(requester_tenant, listing):
    for cursor in MALFORMED_CURSORS:
        assert check_no_leak(requester_tenant.read_list(listing, cursor)), cursor


@pytest.mark.parametrize("read_list", PAGES, ids=lambda page: page[0])
def test_a_page_with_a_foreign_or_malformed_cursor_shows_own_rows_or_is_rejected(
    owner_tenant, requester_tenant, read_list
):
    foreign_cursors = [
        next_cursor(listing, owner_tenant.read_list(listing)) for listing in LISTINGS
    ]

    for cursor in [*MALFORMED_CURSORS, *foreign_cursors]:
        response = requester_tenant.open_page(*read_list, cursor)
        assert response.status_code in {200, 400, 404, 422}, cursor
        assert b"unspeakable" not in response.content, cursor


@fuzz_settings(18)
@given(
    cursor=st.text(max_size=40)
    | st.binary(max_size=40).map(lambda value: base64.urlsafe_b64encode(value).decode())
    | st.tuples(st.datetimes(), st.integers()).map(
        lambda value: base64.urlsafe_b64encode(
            json.dumps([value[0].isoformat() + "Z", value[1]]).encode()
        ).decode()
    ),
    index=st.integers(0, len(LISTINGS) - 1),
)
def test_any_text_is_a_cursor_or_is_rejected(requester_tenant, cursor, index):
    assert check_no_leak(requester_tenant.read_list(LISTINGS[index], cursor))
