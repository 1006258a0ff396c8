"""Experiments on the public link of their dataset."""

from __future__ import annotations

from uuid import UUID

import pytest
from django.test import Client
from langsmith.schemas import TracerSessionResult

from apps.audit.models import Entry
from apps.datasets.models import DatasetShare
from apps.organizations.permissions import SCOPES, Permission
from tests.console.conftest import create_workspace_user, signed_in
from tests.factories.datasets import make_dataset
from tests.factories.organizations import RoleFactory, UserFactory, WorkspaceMembershipFactory


@pytest.fixture
def share(api, dataset):
    """Return a function that shares the dataset and returns the answer."""

    def call(query="?share_projects=true"):
        response = api.put(f"/datasets/{dataset.pk}/share{query}", {})
        assert response.status_code == 200, response.content
        return response.json()

    return call


def listed(token, **query):
    response = Client().get(f"/public/{token}/datasets/sessions", query)
    assert response.status_code == 200, response.content
    return response.json()


@pytest.fixture
def experiments(examples, make_experiment, score):
    """Two experiments: the first with one scored run, the second with two runs."""
    first = make_experiment("first", examples[0], extra={"metadata": {"author": "sentinel"}})
    second = make_experiment("second", examples[0], examples[1])
    score(first.runs[examples[0]][0], "correct", 1)
    return first, second


def test_a_link_shows_the_experiments_of_its_dataset_only(api, workspace, experiments, share):
    first, second = experiments
    other = make_dataset(workspace, {"question": 9}, name="sentinel")
    api.post("/sessions", {"name": "sentinel", "reference_dataset_id": str(other.pk)})
    api.post("/sessions", {"name": "sentinel project"})
    token = share()["share_token"]

    rows = listed(token, include_stats=True)

    assert [row["name"] for row in rows] == ["second", "first"]
    assert [row["run_count"] for row in rows] == [2, 1]
    assert rows[1]["feedback_stats"]["correct"]["avg"] == 1
    assert "sentinel" not in str(rows)
    assert str(workspace.pk) not in str(rows)
    for row in rows:
        TracerSessionResult(**row, _host_url="http://localhost")
        assert not row.keys() & {"extra", "kicked_off_by", "trace_tier"}
    assert [row["name"] for row in listed(token, name="first")] == ["first"]
    assert [row["name"] for row in listed(token, name_contains="eco")] == ["second"]
    assert [row["id"] for row in listed(token, id=[first.id])] == [first.id]
    assert [row["name"] for row in listed(token, limit=1, offset=1)] == ["first"]
    assert listed(token, offset=2) == []
    assert "feedback_stats" not in listed(token)[0]
    assert second.id in {row["id"] for row in listed(token, sort_by="name", sort_by_desc=False)}


@pytest.mark.parametrize("query", [{"limit": 0}, {"offset": -1}, {"id": "x"}, {"filter": "true"}])
def test_a_wrong_selection_is_refused(share, query):
    token = share()["share_token"]

    assert Client().get(f"/public/{token}/datasets/sessions", query).status_code == 422


def test_experiments_are_shared_and_hidden_on_request(api, dataset, make_experiment, share):
    make_experiment("first")
    plain = share(query="")
    path = f"/public/{plain['share_token']}/datasets/sessions"
    assert plain["share_projects"] is False
    assert Client().get(path).status_code == 404

    shown = share()
    assert shown == plain | {"share_projects": True}
    assert share(query="") == shown
    assert api.get(f"/datasets/{dataset.pk}/share").json() == shown
    assert Client().get(path).status_code == 200
    assert share(query="?share_projects=false") == plain
    assert Client().get(path).status_code == 404
    entries = Entry.objects.filter(target_id=dataset.pk, action="dataset.shared").order_by("id")
    assert [entry.after["with_experiments"] for entry in entries] == [False, True, False]
    share()
    api.delete(f"/datasets/{dataset.pk}/share")
    assert Client().get(path).status_code == 404


def test_sharing_experiments_needs_the_permission_to_read_them(
    make_api, workspace, dataset, monkeypatch
):
    share_only = frozenset({Permission.DATASETS_READ, Permission.DATASETS_SHARE})
    monkeypatch.setitem(SCOPES, "ingest", share_only)
    api = make_api(workspace, "ingest")
    path = f"/datasets/{dataset.pk}/share"

    assert api.put(f"{path}?share_projects=true", {}).status_code == 403
    assert not DatasetShare.objects.for_workspace(workspace).exists()
    assert api.put(path, {}).status_code == 200


def test_the_public_page_lists_the_experiments_with_their_scores(
    api, workspace, experiments, share
):
    first, _ = experiments
    other = make_dataset(workspace, {"question": 9}, name="sentinel")
    api.post("/sessions", {"name": "sentinel", "reference_dataset_id": str(other.pk)})
    token = share()["share_token"]

    page = Client().get(f"/public/{token}/d/experiments")

    text = page.content.decode()
    assert page.status_code == 200
    assert (page["X-Robots-Tag"], page["Cache-Control"]) == (
        "noindex, nofollow", "private, no-store"
    )  # fmt: skip
    assert text.index(">second<") < text.index(">first<")
    assert "mean 1 of 1" in text
    assert "sentinel" not in text  # neither metadata nor other datasets
    assert str(workspace.pk) not in text
    assert first.id not in text
    by_name = Client().get(f"/public/{token}/d/experiments", {"sort": "name"}).content.decode()
    assert by_name.index(">first<") < by_name.index(">second<")
    # A search would tell the metadata, which the page does not show.
    assert (
        "second"
        in Client()
        .get(f"/public/{token}/d/experiments", {"metadata": "author=sentinel"})
        .content.decode()
    )
    assert f"/public/{token}/d/experiments" in Client().get(f"/public/{token}/d").content.decode()
    share(query="?share_projects=false")
    assert Client().get(f"/public/{token}/d/experiments").status_code == 404
    assert "/d/experiments" not in Client().get(f"/public/{token}/d").content.decode()


def test_the_dialog_of_the_link_shows_and_hides_experiments(workspace, dataset):
    url = f"/o/{workspace.pk}/datasets/{dataset.pk}/link"
    page = signed_in(create_workspace_user(workspace, "editor"))

    page.post(url, {"experiments": "on"})
    link = DatasetShare.objects.for_workspace(workspace).get()
    assert link.with_experiments
    assert "Hide experiments" in page.get(url).content.decode()
    page.post(url)
    link.refresh_from_db()
    assert link.with_experiments
    page.post(url, {"experiments": "off"})
    link.refresh_from_db()
    assert not link.with_experiments
    assert "Show experiments" in page.get(url).content.decode()


def test_showing_experiments_in_the_dialog_needs_the_permission_to_read_them(workspace, dataset):
    role = RoleFactory(
        organization=workspace.organization, permissions=["datasets:read", "datasets:share"]
    )
    user = UserFactory()
    WorkspaceMembershipFactory(workspace=workspace, user=user, role="", custom_role=role)
    url = f"/o/{workspace.pk}/datasets/{dataset.pk}/link"
    page = Client()
    page.force_login(user)

    page.post(url)
    link = DatasetShare.objects.for_workspace(workspace).get()
    assert "Show experiments" not in page.get(url).content.decode()
    assert page.post(url, {"experiments": "on"}).status_code == 422
    link.refresh_from_db()
    assert not link.with_experiments


def test_an_unknown_link_shows_nothing(db):
    path = f"/public/{UUID(int=7)}/datasets/sessions"

    assert Client().get(path).status_code == 404
