import pytest

from tests.console.conftest import person, signed_in
from tests.factories.deployments import DeploymentFactory
from tests.factories.tracing import ProjectFactory, read, stored_run

pytestmark = pytest.mark.django_db


def find(page, workspace, text):
    return page.get(f"/o/{workspace.pk}/search", {"q": text}).content.decode()


def test_it_finds_by_part_of_a_name(page, workspace):
    DeploymentFactory(workspace=workspace, name="support-desk")
    DeploymentFactory(workspace=workspace, name="planner")
    ProjectFactory(workspace=workspace, name="Support traces")
    ProjectFactory(name="Support elsewhere")

    found = find(page, workspace, "SUPPORT")

    assert "support-desk" in found
    assert "Support traces" in found
    assert "planner" not in found
    assert "Support elsewhere" not in found


def test_a_run_is_found_by_its_id_in_its_own_workspace_only(page, workspace):
    run_id = stored_run(workspace, name="plan route")
    foreign = stored_run(name="secret route")
    project_id = read(workspace, run_id).row.project_id

    found = find(page, workspace, f" {run_id} ")

    assert f"/o/{workspace.pk}/projects/p/{project_id}/r/{run_id}" in found
    assert "No results." in find(page, workspace, str(foreign))


def test_it_offers_only_what_may_be_opened(workspace):
    DeploymentFactory(workspace=workspace, name="support-desk")
    annotator = signed_in(person(workspace, "annotator"))

    found = find(annotator, workspace, "")

    assert "support-desk" not in found
    assert "New deployment" not in found
    assert "Tracing" in found
