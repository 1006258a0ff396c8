import pytest

from tests.console.conftest import create_workspace_user, signed_in
from tests.factories.deployments import DeploymentFactory
from tests.factories.tracing import ProjectFactory, read_run, stored_run

pytestmark = pytest.mark.django_db


def search_palette(page, workspace, text):
    return page.get(f"/o/{workspace.pk}/search", {"q": text}).content.decode()


def test_palette_finds_projects_and_deployments_by_part_of_the_name(page, workspace):
    DeploymentFactory(workspace=workspace, name="support-desk")
    DeploymentFactory(workspace=workspace, name="planner")
    ProjectFactory(workspace=workspace, name="Support traces")
    ProjectFactory(name="Support elsewhere")

    content = search_palette(page, workspace, "SUPPORT")

    assert "support-desk" in content
    assert "Support traces" in content
    assert "planner" not in content
    assert "Support elsewhere" not in content


def test_palette_finds_a_run_by_id_in_its_workspace_only(page, workspace):
    run_id = stored_run(workspace, name="plan route")
    foreign = stored_run(name="secret route")
    project_id = read_run(workspace, run_id).row.project_id

    content = search_palette(page, workspace, f" {run_id} ")

    assert f"/o/{workspace.pk}/projects/p/{project_id}/r/{run_id}" in content
    assert "No results." in search_palette(page, workspace, str(foreign))


def test_palette_lists_only_permitted_pages(workspace):
    DeploymentFactory(workspace=workspace, name="support-desk")
    annotator = signed_in(create_workspace_user(workspace, "annotator"))

    content = search_palette(annotator, workspace, "")

    assert "support-desk" not in content
    assert "New deployment" not in content
    assert "Tracing" in content
