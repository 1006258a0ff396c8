"""Projects that carry tags: made with them, found by them, and free of them when they go."""

from __future__ import annotations

from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.organizations.models import ResourceType, Tagging, TagKey
from apps.organizations.services import tags
from apps.tracing.models import Project
from tests.factories.tracing import ProjectFactory


def value_of(workspace, key: str, value: str):
    there = TagKey.objects.for_workspace(workspace).filter(key=key).first()
    tag_key = there or tags.create_key(workspace_id=workspace.pk, key=key)
    return tags.create_value(key=tag_key, value=value)


@pytest.fixture
def production(workspace):
    return value_of(workspace, "Stage", "production")


@pytest.fixture
def shop(workspace):
    return value_of(workspace, "Product", "shop")


def tagged(workspace, *values, **fields):
    project = ProjectFactory(workspace=workspace, **fields)
    kind = ResourceType.EXPERIMENT if project.reference_dataset_id else ResourceType.PROJECT
    for value in values:
        tags.tag(value=value, resource_type=kind, resource_id=project.pk)
    return project


def names(response):
    assert response.status_code == 200, response.content
    found = response.json()
    return sorted(one["name"] for one in (found if isinstance(found, list) else found["items"]))


@pytest.mark.parametrize("path", ["/sessions", "/v2/sessions"])
def test_a_list_has_those_that_carry_all_the_tags(api, workspace, production, shop, path):
    tagged(workspace, production, shop, name="both")
    tagged(workspace, production, name="one")
    tagged(workspace, production, name="experiment", reference_dataset_id=uuid4())
    tagged(workspace, name="none")

    one = api.get(path, tag_value_id=str(production.pk))
    two = api.get(path, tag_value_id=[str(production.pk), str(shop.pk)])
    with_commas = api.get(path, tag_value_id=f"{production.pk},{shop.pk}")

    assert names(one) == ["both", "experiment", "one"]
    assert names(two) == names(with_commas) == ["both"]
    assert names(api.get(path, tag_value_id=str(uuid4()))) == []
    assert api.get(path, tag_value_id="x").status_code == 422


def test_a_strangers_tag_finds_nothing(api, workspace, stranger):
    theirs = value_of(stranger, "Stage", "production")
    tagged(stranger, theirs, name="sentinel")

    assert names(api.get("/sessions", tag_value_id=str(theirs.pk))) == []


def test_the_number_of_queries_does_not_grow_with_the_projects(api, workspace, production):
    def queries():
        with CaptureQueriesContext(connection) as counted:
            found = names(api.get("/sessions", tag_value_id=str(production.pk)))
        # Whether the key is still remembered is a matter of seconds.
        own = [one for one in counted.captured_queries if "api_keys" not in one["sql"]]
        return len(own), len(found)

    tagged(workspace, production, name="first")
    api.get("/sessions")
    before, one = queries()
    for number in range(20):
        tagged(workspace, production, name=f"p{number}")
    after, all_of_them = queries()

    assert (one, all_of_them) == (1, 21)
    assert after == before


def test_the_tags_are_looked_up_by_an_index(workspace, production):
    projects = Project.objects.for_workspace(workspace)
    asked = tags.filter_by_tags(projects, workspace.pk, [production.pk], [ResourceType.PROJECT])

    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        plan = asked.explain()

    assert "organizations_tagging" in plan
    assert "Seq Scan on organizations_tagging" not in plan


@pytest.mark.parametrize(("path", "status"), [("/sessions", 200), ("/v2/sessions", 201)])
def test_a_project_is_made_with_its_tags(api, production, shop, path, status):
    body = {
        "name": "p",
        "tag_value_ids": [str(production.pk), str(shop.pk)],
        "kicked_off_by": "nightly",
    }

    made = api.post(path, body)

    assert made.status_code == status
    assert made.json()["kicked_off_by"] == "nightly"
    assert names(api.get("/sessions", tag_value_id=[str(production.pk), str(shop.pk)])) == ["p"]
    assert api.get(f"/sessions/{made.json()['id']}").json()["kicked_off_by"] == "nightly"


def test_an_upsert_adds_tags_and_an_experiment_is_tagged_as_one(api, workspace, production, shop):
    api.post("/sessions", {"name": "p", "tag_value_ids": [str(shop.pk)]})
    body = {"name": "p", "tag_value_ids": [str(production.pk)], "kicked_off_by": "me"}

    again = api.post("/sessions?upsert=true", body)
    body = {"name": "e", "reference_dataset_id": str(uuid4()), "tag_value_ids": [str(shop.pk)]}
    api.post("/sessions", body)

    assert (again.status_code, again.json()["kicked_off_by"]) == (200, "me")
    found = Tagging.objects.for_workspace(workspace).order_by("created_at")
    assert [one.resource_type for one in found] == ["project", "project", "experiment"]


def test_a_strangers_tag_makes_no_project(api, workspace, stranger, production):
    theirs = value_of(stranger, "Stage", "production")

    refused = api.post("/sessions", {"name": "p", "tag_value_ids": [str(theirs.pk)]})
    other = value_of(workspace, "Stage", "test")
    two = api.post("/sessions", {"name": "p", "tag_value_ids": [str(production.pk), str(other.pk)]})

    assert (refused.status_code, two.status_code) == (404, 422)
    assert not Project.objects.for_workspace(workspace).filter(name="p").exists()
    assert not Tagging.unscoped.exists()


def test_a_deleted_project_leaves_no_tag_behind(api, workspace, production):
    project = tagged(workspace, production)

    assert api.delete(f"/sessions/{project.pk}").status_code == 202

    assert not Tagging.objects.for_workspace(workspace).exists()


@pytest.mark.parametrize(
    "body",
    [
        {"type": "AGENT", "name": "p"},
        {"type": "PROJECT", "name": "p", "reference_dataset_id": "0" * 32},
        {"type": "EXPERIMENT", "name": "p"},
    ],
    ids=["agent", "project", "experiment"],
)
def test_a_type_that_does_not_fit_is_refused(api, workspace, body):
    assert api.post("/v2/sessions", body).status_code == 422
    assert not Project.objects.for_workspace(workspace).filter(name="p").exists()
