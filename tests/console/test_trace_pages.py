import json
import re
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.ingest import decoders
from apps.ingest.services import ingest_runs
from tests.factories.tracing import (
    MULTIPART,
    ProjectFactory,
    ingest,
    multipart_body,
    read_run,
    stored_run,
    wire_run,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def base(workspace):
    return f"/o/{workspace.pk}/projects"


def find_project_id(workspace, run_id):
    return read_run(workspace, run_id).row.project_id


def run_url(base, workspace, run_id):
    return f"{base}/p/{find_project_id(workspace, run_id)}/r/{run_id}"


def count_queries(page, url):
    page.get(url)
    with CaptureQueriesContext(connection) as captured:
        assert page.get(url).status_code == 200
    return len(captured)


def test_empty_workspace_shows_how_to_send_a_trace(page, base, settings):
    settings.BASE_URL = settings.API_BASE_URL = "https://slipway.example"

    content = page.get(base).content.decode()
    steps = page.get(base.replace("/projects", "/start")).content.decode()

    assert "No traces yet" in content
    assert "LANGSMITH_ENDPOINT=https://slipway.example/api/v1" in steps


def test_project_with_the_newest_run_is_first_and_names_sort(page, base, workspace, monkeypatch):
    now = datetime.now(UTC)
    for name, minutes in (("planner", 5), ("desk", 300), ("archive", 9)):
        stored_run(workspace, session_name=name, start=now - timedelta(minutes=minutes))
    ProjectFactory(workspace=workspace, name="unused", start_time=now - timedelta(days=3))
    monkeypatch.setattr("apps.tracing.pages.projects.PROJECTS_PER_PAGE", 2)

    def names(sort):
        listed = []
        cursor = ""
        while cursor is not None:
            context = page.get(base, {"after": cursor, "sort": sort}).context
            listed.append([row.project.name for row in context["rows"]])
            cursor = context["next_cursor"]
        return listed

    assert names("") == [["planner", "archive"], ["desk", "unused"]]
    assert names("name") == [["archive", "desk"], ["planner", "unused"]]
    assert page.get(base, {"after": "x"}).status_code == 400


def test_graph_with_the_librarys_name_is_shown_by_its_graph_id(page, base, workspace):
    metadata = {"extra": {"metadata": {"graph_id": "researcher"}}}
    named, other = wire_run(name="LangGraph", **metadata), wire_run(name="LangGraph")
    inner = wire_run(named, name="LangGraph", **metadata)
    ingest(workspace, named, inner, other)
    url = run_url(base, workspace, named["id"])
    list_url = url.rpartition("/r/")[0]

    def list_names(**query):
        text = page.get(list_url, query).content.decode()
        return re.findall(r'row-link truncate" href="[^"]+">(\w+)', text)

    trace = page.get(f"{url}?view=tree")
    facets = page.get(f"{list_url}/facets").context["facets"]

    assert list_names() == ["LangGraph", "researcher"]
    assert list_names(query="name:researcher") == ["researcher"]
    assert list_names(query="name:LangGraph") == ["LangGraph"]
    [names] = [facet.values for facet in facets if facet.title == "Name"]
    assert {value.label for value in names} == {"LangGraph", "researcher"}
    assert "<h2>researcher</h2>" in trace.text
    assert [run.as_json()[3] for run in trace.context["tree"].runs] == ["researcher", "LangGraph"]


def test_graph_renamed_by_an_update_is_still_shown_by_its_graph_id(page, base, workspace):
    run = wire_run(name="LangGraph", extra={"metadata": {"graph_id": "researcher"}})
    ingest(workspace, run)
    update = {"id": run["id"], "name": "LangGraph", "session_name": "default"}
    body = json.dumps({"patch": [update]}).encode()
    ingest_runs.ingest(workspace.pk, decoders.decode_batch(body))

    assert read_run(workspace, run["id"]).row.name == "LangGraph"
    trace = page.get(f"{run_url(base, workspace, run['id'])}?view=tree")
    assert "<h2>researcher</h2>" in trace.text


def test_project_list_shows_projects_of_the_workspace(page, base, workspace):
    stored_run(workspace, session_name="planner")
    ProjectFactory(name="of others")

    content = page.get(base).content.decode()

    assert "planner" in content
    assert "of others" not in content


def test_project_list_is_filtered_by_name_and_paginated(page, base, workspace):
    start = datetime(2026, 1, 1, tzinfo=UTC)
    for number in range(52):
        ProjectFactory(
            workspace=workspace, name=f"p{number:02}", start_time=start + timedelta(hours=number)
        )

    first = page.get(base)
    second = page.get(base + "?after=" + first.context["next_cursor"].replace("+", "%2B"))

    assert [row.project.name for row in first.context["rows"]][::49] == ["p51", "p02"]
    assert [row.project.name for row in second.context["rows"]] == ["p01", "p00"]
    assert second.context["next_cursor"] is None
    assert [row.project.name for row in page.get(base + "?q=P4").context["rows"]] == [
        f"p{n}" for n in range(49, 39, -1)
    ]
    assert page.get(base + "?after=nonsense").status_code == 400


def test_query_count_of_project_list_does_not_grow_with_its_length(page, base, workspace):
    ProjectFactory(workspace=workspace)
    with_one = count_queries(page, base)
    ProjectFactory.create_batch(6, workspace=workspace)

    assert count_queries(page, base) == with_one


def test_trace_list_shows_escaped_inputs_and_errors_and_filters(page, base, workspace):
    run_id = stored_run(workspace, name="answer", inputs={"q": "<why>"}, tags=["prod"])
    failed = stored_run(workspace, name="fall", error="Boom: it broke")
    project_id = find_project_id(workspace, run_id)

    content = page.get(f"{base}/p/{project_id}").content.decode()
    errors = page.get(f"{base}/p/{project_id}", {"filter": 'eq(status, "error")'}).content.decode()

    assert "&lt;why&gt;" in content
    assert "<why>" not in content
    assert "Boom: it broke" in content
    assert str(failed) in errors
    assert str(run_id) not in errors


def test_query_count_of_trace_list_does_not_grow_with_its_length(page, base, workspace):
    url = f"{base}/p/{find_project_id(workspace, stored_run(workspace))}"
    with_one = count_queries(page, url)
    for _ in range(6):
        stored_run(workspace)

    assert count_queries(page, url) == with_one


def ingest_nested_runs(workspace):
    root = wire_run(name="desk")
    child = wire_run(root, name="find", run_type="tool", error="Timeout: too slow", outputs=None)
    leaf = wire_run(child, name="ask", run_type="llm")
    ingest(workspace, root, child, leaf)
    return root, child, leaf


def test_trace_page_shows_the_tree_and_the_selected_run(page, base, workspace):
    root, child, leaf = ingest_nested_runs(workspace)

    response = page.get(run_url(base, workspace, child["id"]))
    content = response.content.decode()
    tree = json.loads(bytes(response.context["tree"].as_json()))

    assert [(run[0], run[1], run[3], run[4]) for run in tree["runs"]] == [
        (root["id"], -1, "desk", "success"),
        (child["id"], 0, "find", "error"),
        (leaf["id"], 1, "ask", "success"),
    ]
    assert f'selected="{child["id"]}"' in content
    assert "Timeout: too slow" in content
    assert content.count('role="treeitem"') == 4  # and the template's own row


def test_htmx_request_for_a_run_returns_only_the_run(page, base, workspace):
    _, _, leaf = ingest_nested_runs(workspace)

    fragment = page.get(run_url(base, workspace, leaf["id"]), headers={"HX-Request": "true"})

    content = fragment.content.decode().strip()
    assert content.startswith(f'<article class="run" data-run="{leaf["id"]}">')
    assert "ask</h2>" in content
    assert "trace-tree" not in content


def test_query_count_of_a_trace_does_not_grow_with_its_runs(page, base, workspace):
    root, child, _ = ingest_nested_runs(workspace)
    url = run_url(base, workspace, root["id"])
    with_three = count_queries(page, url)
    ingest(workspace, *(wire_run(child) for _ in range(20)))

    assert count_queries(page, url) == with_three


def test_payload_cannot_close_its_script_element(page, base, workspace):
    run_id = stored_run(workspace, inputs={"a": "</script><script>alert(1)</script>", "b": "&"})

    content = page.get(run_url(base, workspace, run_id)).content.decode()

    assert "<script>alert" not in content
    assert "\\u003C/script\\u003E" in content


def test_large_payload_is_loaded_separately(page, base, workspace):
    run_id = stored_run(workspace, outputs={"rows": ["x" * 1000] * 200})
    url = run_url(base, workspace, run_id)

    response = page.get(url)
    raw = page.get(f"{url}/outputs.json")

    assert len(response.content) < 100_000
    assert f'<json-view src="{url}/outputs.json">' in response.content.decode()
    assert raw["Content-Type"] == "application/json"
    assert json.loads(raw.content) == {"rows": ["x" * 1000] * 200}
    assert page.get(f"{url}/extra2.json").status_code == 404


def test_messages_are_rendered_with_their_roles(page, base, workspace):
    run_id = stored_run(
        workspace,
        inputs={"messages": [{"role": "user", "content": "Where is **it**?"}]},
    )

    content = page.get(run_url(base, workspace, run_id)).content.decode()

    assert '<li class="message" data-role="human">' in content
    assert "Where is **it**?</markdown-view>" in content


@pytest.fixture
def run_with_files(workspace):
    run = wire_run()
    fields = {k: v for k, v in run.items() if k not in ("inputs", "outputs")}
    body = multipart_body(
        (f"post.{run['id']}", fields),
        (f"attachment.{run['id']}.page", b"<script>alert(1)</script>", "Content-Type: text/html"),
        (f"attachment.{run['id']}.dot", b"\x89PNG", "Content-Type: image/png"),
    )
    boundary = MULTIPART.partition("boundary=")[2].encode()
    ingest_runs.ingest(workspace.pk, decoders.decode_multipart(body, boundary))
    return run["id"]


def test_only_media_attachments_open_in_the_browser(page, base, workspace, run_with_files):
    url = run_url(base, workspace, run_with_files)
    files = {f.name: n for n, f in enumerate(read_run(workspace, run_with_files).row.attachments)}

    html = page.get(f"{url}/attachments/{files['page']}")
    image = page.get(f"{url}/attachments/{files['dot']}")

    assert html["Content-Type"] == "application/octet-stream"
    assert html["Content-Disposition"].startswith("attachment")
    assert html["X-Content-Type-Options"] == "nosniff"
    assert image["Content-Type"] == "image/png"
    assert image.getvalue() == b"\x89PNG"
    assert html.getvalue() == b"<script>alert(1)</script>"
    assert page.get(f"{url}/attachments/2").status_code == 404


def test_run_url_without_project_redirects_to_the_run(page, base, workspace):
    run_id = stored_run(workspace)

    response = page.get(f"/o/{workspace.pk}/r/{run_id}")

    assert response["Location"] == run_url(base, workspace, run_id)


def test_run_of_another_project_or_workspace_is_404(page, base, workspace):
    run_id = stored_run(workspace, session_name="here")
    other_run_id = stored_run(workspace, session_name="there")
    foreign = stored_run()

    wrong_project = f"{base}/p/{find_project_id(workspace, run_id)}/r/{other_run_id}"

    assert page.get(wrong_project).status_code == 404
    assert page.get(f"/o/{workspace.pk}/r/{foreign}").status_code == 404
