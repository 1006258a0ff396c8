"""The first run in a real browser: the key of the first Copy, and the line that waits."""

from __future__ import annotations

import json

from playwright.sync_api import expect

from apps.deployments.models import RevisionGraph
from tests.browser.test_tracing_workflows import project_path
from tests.factories.datasets import make_dataset
from tests.factories.deployments import DeploymentFactory, RevisionFactory
from tests.factories.tracing import stored_run


def create_agent(workspace):
    """Create the deployment of an agent that takes messages and serves."""
    agent = DeploymentFactory(workspace=workspace, name="sample-agent")
    agent.active_revision = RevisionFactory(deployment=agent, status="DEPLOYED")
    agent.save()
    RevisionGraph.unscoped.create(
        workspace=workspace,
        revision=agent.active_revision,
        graph_id="agent",
        schemas={"input_schema": {"properties": {"messages": {"type": "array"}}}},
        drawing={},
    )
    return agent


def answer_calls(page, run_id, *texts):
    """Answer the page's calls of an agent by the texts; return the list of its requests."""
    chunks = [{"id": "m1", "type": "AIMessageChunk", "content": text} for text in texts]
    events = [("metadata", {"run_id": str(run_id)})]
    events += [("messages", [chunk, {}]) for chunk in chunks]
    body = "".join(f"event: {name}\ndata: {json.dumps(data)}\n\n" for name, data in events)
    requests = []

    def answer(route):
        requests.append(route.request)
        route.fulfill(body=body, content_type="text/event-stream")

    page.route("**/agents/*/runs/stream", answer)
    return requests


def test_reply_of_an_agent_streams_into_the_page_and_links_its_trace(session):
    agent = create_agent(session.workspace)
    page = session.page
    requests = answer_calls(page, stored_run(session.workspace, name="sample-agent"), "8", "5")

    for address in (f"{session.path}/start", f"{session.path}/deployments/{agent.pk}"):
        session.goto(address)
        page.get_by_label("Message").fill("What is 12 * 7 + 1?")
        page.get_by_role("button", name="Send").click()
        expect(page.locator(".agent-answer-reply")).to_have_text("85")

    page.get_by_role("link", name="Open the trace").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Trace sample-agent")
    assert [request.post_data_json["assistant_id"] for request in requests] == ["agent"] * 2
    assert all(request.headers["x-csrftoken"] for request in requests)
    assert requests[0].url.endswith(f"/agents/{agent.slug}/runs/stream")


def test_next_steps_of_which_some_are_done_fit_a_phone(session):
    make_dataset(session.workspace, {"question": "Why?"})
    address = project_path(session, stored_run(session.workspace))
    session.page.set_viewport_size({"width": 390, "height": 844})

    page = session.goto(address)

    expect(page.locator(".first-steps li.is-done")).to_have_text("Save it as an example, done")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
