"""Tags of projects: creating projects with tags, listing by tags, removing tags with a project."""

from __future__ import annotations

from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.organizations.models import ResourceType, Tagging, TagKey
from apps.organizations.services import tags
from apps.tracing.models import Project
from apps.tracing.services import create_project
from tests.factories.tracing import ProjectFactory


def create_tag_value(workspace, key: str, value: str):
    existing = TagKey.objects.for_workspace(workspace).filter(key=key).first()
    tag_key = existing or tags.create_key(workspace_id=workspace.pk, key=key)
    return tags.create_value(key=tag_key, value=value)


@pytest.fixture
def production(workspace):
    return create_tag_value(workspace, "Stage", "production")


@pytest.fixture
def shop(workspace):
    return create_tag_value(workspace, "Product", "shop")


def create_tagged_project(workspace, *values, **fields):
    project = ProjectFactory(workspace=workspace, **fields)
    resource_type = (
        ResourceType.EXPERIMENT if project.reference_dataset_id else ResourceType.PROJECT
    )
    for value in values:
        tags.tag(value=value, resource_type=resource_type, resource_id=project.pk)
    return project


def project_names(response):
    assert response.status_code == 200, response.content
    body = response.json()
    return sorted(
        project["name"] for project in (body if isinstance(body, list) else body["items"])
    )


@pytest.mark.parametrize("path", ["/sessions", "/v2/sessions"])
def test_a_list_contains_the_projects_with_all_the_tags(api, workspace, production, shop, path):
    create_tagged_project(workspace, production, shop, name="both")
    create_tagged_project(workspace, production, name="one")
    create_tagged_project(workspace, production, name="experiment", reference_dataset_id=uuid4())
    create_tagged_project(workspace, name="none")

    with_one = api.get(path, tag_value_id=str(production.pk))
    with_two = api.get(path, tag_value_id=[str(production.pk), str(shop.pk)])
    with_commas = api.get(path, tag_value_id=f"{production.pk},{shop.pk}")

    assert project_names(with_one) == ["both", "experiment", "one"]
    assert project_names(with_two) == project_names(with_commas) == ["both"]
    assert project_names(api.get(path, tag_value_id=str(uuid4()))) == []
    assert api.get(path, tag_value_id="x").status_code == 422


def test_a_tag_of_another_workspace_finds_no_project(api, workspace, other_workspace):
    foreign_tag = create_tag_value(other_workspace, "Stage", "production")
    create_tagged_project(other_workspace, foreign_tag, name="sentinel")

    assert project_names(api.get("/sessions", tag_value_id=str(foreign_tag.pk))) == []


def test_the_number_of_queries_does_not_grow_with_the_projects(api, workspace, production):
    def count_queries():
        with CaptureQueriesContext(connection) as captured:
            listed = project_names(api.get("/sessions", tag_value_id=str(production.pk)))
        # The key is cached for some seconds, so its query may or may not be repeated.
        queries = [query for query in captured.captured_queries if "api_keys" not in query["sql"]]
        return len(queries), len(listed)

    create_tagged_project(workspace, production, name="first")
    api.get("/sessions")
    before, first_count = count_queries()
    for number in range(20):
        create_tagged_project(workspace, production, name=f"p{number}")
    after, last_count = count_queries()

    assert (first_count, last_count) == (1, 21)
    assert after == before


def test_tags_are_looked_up_by_an_index(workspace, production):
    projects = Project.objects.for_workspace(workspace)
    tagged_projects = tags.filter_by_tags(
        projects, workspace.pk, [production.pk], [ResourceType.PROJECT]
    )

    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        plan = tagged_projects.explain()

    assert "organizations_tagging" in plan
    assert "Seq Scan on organizations_tagging" not in plan


@pytest.mark.parametrize(("path", "status"), [("/sessions", 200), ("/v2/sessions", 201)])
def test_a_project_is_created_with_its_tags(api, production, shop, path, status):
    body = {
        "name": "p",
        "tag_value_ids": [str(production.pk), str(shop.pk)],
        "kicked_off_by": "nightly",
    }

    created = api.post(path, body)

    assert created.status_code == status
    assert created.json()["kicked_off_by"] == "nightly"
    assert project_names(api.get("/sessions", tag_value_id=[str(production.pk), str(shop.pk)])) == [
        "p"
    ]
    assert api.get(f"/sessions/{created.json()['id']}").json()["kicked_off_by"] == "nightly"


def test_an_upsert_adds_tags_and_an_experiment_has_its_own_resource_type(
    api, workspace, production, shop
):
    api.post("/sessions", {"name": "p", "tag_value_ids": [str(shop.pk)]})
    body = {"name": "p", "tag_value_ids": [str(production.pk)], "kicked_off_by": "me"}

    upserted = api.post("/sessions?upsert=true", body)
    create_project(
        workspace_id=workspace.pk,
        name="e",
        reference_dataset_id=uuid4(),
        tag_value_ids=[shop.pk],
    )

    assert (upserted.status_code, upserted.json()["kicked_off_by"]) == (200, "me")
    taggings = Tagging.objects.for_workspace(workspace).order_by("created_at")
    assert [tagging.resource_type for tagging in taggings] == ["project", "project", "experiment"]


def test_a_project_with_a_foreign_or_duplicate_tag_is_rejected(
    api, workspace, other_workspace, production
):
    foreign_tag = create_tag_value(other_workspace, "Stage", "production")

    not_found = api.post("/sessions", {"name": "p", "tag_value_ids": [str(foreign_tag.pk)]})
    other = create_tag_value(workspace, "Stage", "test")
    two_values = api.post(
        "/sessions", {"name": "p", "tag_value_ids": [str(production.pk), str(other.pk)]}
    )

    assert (not_found.status_code, two_values.status_code) == (404, 422)
    assert not Project.objects.for_workspace(workspace).filter(name="p").exists()
    assert not Tagging.unscoped.exists()


def test_a_deleted_project_leaves_no_tagging(api, workspace, production):
    project = create_tagged_project(workspace, production)

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
def test_a_type_that_does_not_match_the_fields_is_rejected(api, workspace, body):
    assert api.post("/v2/sessions", body).status_code == 422
    assert not Project.objects.for_workspace(workspace).filter(name="p").exists()
