import pytest

from apps.deployments import routes
from apps.deployments.models import RevisionGraph
from apps.deployments.statuses import RevisionStatus
from tests.factories.deployments import DeploymentFactory, RevisionFactory

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def clear_cache():
    routes.clear_cache()
    yield
    routes.clear_cache()


def test_route_has_the_data_of_the_active_revision():
    deployment = DeploymentFactory(name="Agent", slug="agent")
    revision = RevisionFactory(
        deployment=deployment, status=RevisionStatus.DEPLOYED, config={"graphs": {"b": "x:y"}}
    )
    for name in ("b", "a"):
        RevisionGraph.unscoped.create(
            workspace=deployment.workspace, revision=revision, graph_id=name
        )
    deployment.active_revision = revision
    deployment.save()

    route = routes.find_route("agent")

    assert (route.deployment_id, route.active_revision_id) == (deployment.pk, revision.pk)
    assert route.workspace_id == deployment.workspace_id
    assert route.organization_id == deployment.workspace.organization_id
    assert (route.slug, route.name, route.tracing) == ("agent", "Agent", True)
    assert route.config == {"graphs": {"b": "x:y"}}
    assert route.graph_ids == ("a", "b")


def test_route_of_an_undeployed_deployment_has_no_revision():
    deployment = DeploymentFactory()

    route = routes.find_route(deployment.slug)

    assert (route.active_revision_id, route.config, route.graph_ids) == (None, {}, ())


def test_unknown_and_deleted_slugs_have_no_route():
    deleted = DeploymentFactory(deleted_at="2026-01-01T00:00:00Z")

    assert routes.find_route("unknown") is None
    assert routes.find_route(deleted.slug) is None


def test_second_lookup_does_not_hit_the_database(django_assert_num_queries):
    deployment = DeploymentFactory()
    deployment.active_revision = RevisionFactory(deployment=deployment, status="DEPLOYED")
    deployment.save()
    routes.find_route(deployment.slug)

    with django_assert_num_queries(0):
        routes.find_route(deployment.slug)


def test_the_first_revision_is_served_at_once():
    deployment = DeploymentFactory(slug="new")
    route = routes.find_route("new")
    assert route is not None
    assert route.active_revision_id is None
    assert routes.cached_route("new")[0] is False

    revision = RevisionFactory(deployment=deployment, number=1, status="DEPLOYED")
    deployment.active_revision = revision
    deployment.save()

    route = routes.find_route("new")
    assert route is not None
    assert route.active_revision_id == revision.pk
    assert routes.cached_route("new") == (True, route)
