"""The API documentation page of an agent loads under the Content-Security-Policy in both themes."""

from __future__ import annotations

import pytest

from tests.factories.agent_server import AgentFactory, route_of


@pytest.fixture
def agent(session):
    agent = AgentFactory(workspace=session.workspace, name="support")
    route_of(agent)
    return agent


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_api_page_lists_every_operation_of_the_openapi_document(session, agent, theme):
    session.page.emulate_media(color_scheme=theme, reduced_motion="reduce")
    page = session.goto(f"/agents/{agent.slug}/docs")
    page.get_by_text("/runs/crons/search").first.wait_for()

    operations = page.locator(".opblock").count()
    is_dark = page.evaluate("document.documentElement.classList.contains('dark-mode')")

    document = page.request.get(f"/agents/{agent.slug}/openapi.json").json()
    assert operations == sum(len(methods) for methods in document["paths"].values())
    assert is_dark == (theme == "dark")


def test_api_page_sends_a_request(session, agent):
    page = session.goto(f"/agents/{agent.slug}/docs")

    row = page.locator("#operations-system-get_info")
    row.locator(".opblock-summary").click()
    row.get_by_role("button", name="Try it out").click()
    row.get_by_role("button", name="Execute", exact=True).click()

    row.locator(".live-responses-table .response-col_status", has_text="200").wait_for()
    assert agent.name in row.locator(".live-responses-table").inner_text()
