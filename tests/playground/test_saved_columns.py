"""What members keep in the playground: drafts of their own, and links for the workspace."""

from __future__ import annotations

import pytest

from apps.playground.models import Draft, PlaygroundShare
from apps.playground.services import saved_columns
from tests.console.conftest import create_workspace_user, signed_in
from tests.factories.organizations import WorkspaceFactory
from tests.playground.conftest import send, setting

pytestmark = pytest.mark.django_db


def state(text="{question}", **fields):
    column = {"letter": "A", "setting": setting({"role": "human", "content": text})}
    return {"columns": [column], **fields}


def test_draft_is_the_persons_own(page, workspace, base):
    colleague = signed_in(create_workspace_user(workspace, "viewer"))
    assert page.get(f"{base}/draft").json() == {"state": None, "updated_at": None}

    saved = send(page, f"{base}/draft", state(view={"tab": 1}), "put")
    again = send(page, f"{base}/draft", state("Second"), "put")

    assert (saved.status_code, again.status_code) == (200, 200)
    draft = page.get(f"{base}/draft").json()
    assert draft["state"] == state("Second")
    assert draft["updated_at"] == again.json()["updated_at"]
    assert colleague.get(f"{base}/draft").json()["state"] is None
    assert Draft.unscoped.count() == 1


def test_draft_of_another_workspace_is_another_one(page, workspace, base):
    send(page, f"{base}/draft", state(), "put")
    other = WorkspaceFactory(organization=workspace.organization)

    assert page.get(f"/o/{other.pk}/playground/draft").status_code == 404


def test_draft_is_deleted(page, base):
    send(page, f"{base}/draft", state(), "put")

    assert page.delete(f"{base}/draft").status_code == 204
    assert not Draft.unscoped.exists()


@pytest.mark.parametrize(
    "body",
    [
        {"columns": [state()["columns"][0]] * 2},
        {"columns": [{"letter": "K", "setting": setting()}]},
        state(view={"a": "x" * 5000}),
        state("x" * 2_100_000),
        {"columns": 5},
        {**state(), "more": 1},
    ],
)
def test_bad_draft_is_refused(page, base, body):
    response = send(page, f"{base}/draft", body, "put")

    assert (response.status_code, response.json()["code"]) == (422, "bad_playground_setting")
    assert not Draft.unscoped.exists()


def test_link_shows_the_columns_to_the_workspace(page, workspace, base):
    shared = send(page, f"{base}/shares", {"title": "Short answers", "state": state()})
    send(page, f"{base}/draft", state("Changed"), "put")

    assert shared.status_code == 201
    link = shared.json()
    assert link["url"] == f"{base}?share={link['id']}"
    viewer = signed_in(create_workspace_user(workspace, "viewer"))
    seen = viewer.get(f"{base}/shares/{link['id']}").json()
    assert (seen["title"], seen["state"]) == ("Short answers", state())
    filled = viewer.get(f"{base}/prefill?share={link['id']}").json()
    assert filled["columns"] == state()["columns"]
    assert filled["recorded"] == [None]


def test_link_is_unknown_in_another_workspace(page, base):
    link = send(page, f"{base}/shares", {"state": state()}).json()
    elsewhere = WorkspaceFactory()
    member = signed_in(create_workspace_user(elsewhere, "admin"))

    response = member.get(f"/o/{elsewhere.pk}/playground/shares/{link['id']}")

    assert response.status_code == 404


def test_viewers_keep_and_delete_nothing(page, workspace, base):
    viewer = signed_in(create_workspace_user(workspace, "viewer"))
    link = send(page, f"{base}/shares", {"state": state()}).json()["id"]

    assert send(viewer, f"{base}/draft", state(), "put").status_code == 403
    assert viewer.delete(f"{base}/draft").status_code == 403
    assert send(viewer, f"{base}/shares", {"state": state()}).status_code == 403
    assert viewer.delete(f"{base}/shares/{link}").status_code == 403
    assert PlaygroundShare.unscoped.count() == 1
    assert not Draft.unscoped.exists()


def test_link_is_deleted_by_editors(page, workspace, base):
    link = send(page, f"{base}/shares", {"state": state()}).json()["id"]
    colleague = signed_in(create_workspace_user(workspace, "editor"))

    assert colleague.delete(f"{base}/shares/{link}").status_code == 204
    assert not PlaygroundShare.unscoped.exists()


def test_workspace_has_a_limit_of_links(page, base, monkeypatch):
    monkeypatch.setattr(saved_columns, "MAX_SHARES", 1)
    send(page, f"{base}/shares", {"state": state()})

    assert send(page, f"{base}/shares", {"state": state()}).status_code == 409
    assert PlaygroundShare.unscoped.count() == 1
