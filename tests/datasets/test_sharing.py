"""Public links to datasets."""

from __future__ import annotations

from uuid import uuid4

import pytest
from django.test import Client

from apps.audit.models import Entry
from apps.datasets.models import DatasetShare
from apps.organizations import hooks
from tests.factories.datasets import make_dataset
from tests.factories.tracing import stored_run


@pytest.fixture
def shared(api, workspace):
    """A dataset with two examples, and the token of its link."""
    dataset = make_dataset(workspace, {"n": 1}, {"n": 2}, description="d")
    return dataset, api.put(f"/datasets/{dataset.pk}/share", {}).json()["share_token"]


def public(path, **query):
    return Client().get(path, query)


def test_callers_without_access_are_refused(make_api, workspace, other_workspace, shared):
    path = f"/datasets/{shared[0].pk}/share"
    outsider, reader = make_api(other_workspace), make_api(workspace, "read")

    for api, statuses in ((outsider, [404, 404, 404]), (reader, [200, 403, 403])):
        responses = [api.get(path), api.put(path, {}), api.delete(path)]
        assert [r.status_code for r in responses] == statuses
    assert DatasetShare.objects.for_workspace(workspace).count() == 1


def test_a_link_is_created_once_and_revoked(api, dataset):
    path = f"/datasets/{dataset.pk}/share"
    assert (api.get(path).status_code, api.get(path).json()["code"]) == (404, "share_not_found")
    token = str(uuid4())

    created = api.put(path, {"dataset_id": str(dataset.pk), "share_token": token})

    assert created.json() == {
        "dataset_id": str(dataset.pk), "share_token": token, "share_projects": False,
    }  # fmt: skip
    assert api.put(path, {"dataset_id": str(dataset.pk)}).json() == created.json()
    assert api.get(path).json() == created.json()
    assert api.delete(path).status_code == 204
    assert api.delete(path).status_code == 204
    assert api.get(path).status_code == 404
    assert public(f"/public/{token}/datasets").status_code == 404
    actions = Entry.objects.filter(target_id=dataset.pk).order_by("id")
    assert list(actions.values_list("action", flat=True)) == [
        "dataset.created", "dataset.shared", "dataset.unshared",
    ]  # fmt: skip


def test_a_token_of_another_link_is_refused(api, make_api, other_workspace, shared):
    other = make_dataset(other_workspace)

    response = make_api(other_workspace).put(
        f"/datasets/{other.pk}/share", {"share_token": shared[1]}
    )

    assert (response.status_code, response.json()["code"]) == (409, "share_token_taken")


def test_anyone_reads_the_shared_dataset_and_nothing_else(api, workspace, shared):
    dataset, token = shared
    run_id = stored_run(workspace)
    body = {"dataset_id": str(dataset.pk), "inputs": {"n": 3}, "source_run_id": str(run_id)}
    api.post("/examples", body)
    make_dataset(workspace, {"secret": 1}, name="private")

    shown = public(f"/public/{token}/datasets").json()
    examples = public(f"/public/{token}/examples").json()

    assert (shown["id"], shown["name"], shown["example_count"]) == (str(dataset.pk), "dataset", 3)
    assert "tenant_id" not in shown
    assert [example["inputs"]["n"] for example in examples] == [3, 1, 2]
    assert not any(name.startswith("source_") for name in examples[0])
    assert public(f"/public/{token}/examples/count").json() == 3
    one = public(f"/public/{token}/examples", id=examples[1]["id"], limit=5, offset=0).json()
    assert [example["inputs"]["n"] for example in one] == [1]
    assert public(f"/public/{token}/examples", dataset=str(uuid4())).status_code == 422
    assert public(f"/public/{uuid4()}/examples").status_code == 404


def test_a_link_ends_with_its_dataset_and_with_the_permission_to_share(api, workspace, shared):
    dataset, token = shared
    organization = workspace.organization

    organization.public_sharing_disabled = True
    organization.save()
    assert public(f"/public/{token}/datasets").status_code == 404
    forbidden = api.put(f"/datasets/{dataset.pk}/share", {})
    assert (forbidden.status_code, forbidden.json()["code"]) == (403, "sharing_forbidden")
    organization.public_sharing_disabled = False
    organization.save()
    assert public(f"/public/{token}/datasets").status_code == 200

    api.delete(f"/datasets/{dataset.pk}")
    assert public(f"/public/{token}/datasets").status_code == 404
    assert not DatasetShare.objects.for_workspace(workspace).exists()


def test_links_are_listed_and_revoked_with_those_of_traces(api, workspace, shared):
    dataset, token = shared
    run_id = stored_run(workspace)
    api.put(f"/runs/{run_id}/share", {})
    path = "/workspaces/current/shared"

    entities = api.get(path).json()["entities"]

    assert [entity["type"] for entity in entities] == ["run", "dataset"]
    assert (entities[1]["share_token"], entities[1]["dataset_id"]) == (token, str(dataset.pk))
    assert api.get(path, limit=1, offset=1).json()["entities"] == entities[1:]
    body = {"share_tokens": [token]}
    assert api.client.delete(path, body, content_type="application/json").status_code == 200
    assert public(f"/public/{token}/datasets").status_code == 404
    assert [entity["type"] for entity in api.get(path).json()["entities"]] == ["run"]


def test_revoking_all_links_of_an_organization_includes_datasets(workspace, shared):
    hooks.public_links_revoked(workspace.organization)

    assert public(f"/public/{shared[1]}/datasets").status_code == 404
