"""The pages of tracing over HTTP: what they show, what they refuse, what they cost."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from apps.feedback.models import Feedback
from apps.trace_store import RunQuery, run_store
from apps.trace_store.aggregation import MetricsQuery
from apps.trace_store.metrics import Measure
from apps.tracing.models import ModelPrice, Project, SavedView, Share
from tests.console.conftest import person, signed_in
from tests.factories.organizations import WorkspaceFactory
from tests.factories.tracing import ingest, read, rows, stored_run, wire_run

pytestmark = pytest.mark.django_db
FRAGMENT = {"HX-Request": "true"}


@pytest.fixture
def workspace():
    return WorkspaceFactory(name="Desk", organization__name="Northwind")


@pytest.fixture
def page(workspace) -> Client:
    return signed_in(person(workspace, "editor"))


@pytest.fixture
def viewer(workspace) -> Client:
    return signed_in(person(workspace, "viewer"))


def project_address(workspace, run_id):
    project_id = read(workspace, run_id).row.project_id
    return f"/o/{workspace.pk}/projects/p/{project_id}"


def names(response):
    return [listed.row.name for listed in response.context["list"].rows]


def test_a_stranger_sees_none_of_the_pages(workspace):
    run_id = stored_run(workspace)
    base = project_address(workspace, run_id)
    stranger = signed_in(person(WorkspaceFactory(), "admin"))

    paths = ["", "/facets", "/strip", "/values?field=name", "/monitoring", "/threads", "/settings"]
    paths += [f"/compare?a={run_id}", "/thread?thread=t", "/download", f"/r/{run_id}"]
    paths += [f"/r/{run_id}/tree.json", f"/r/{run_id}/download", f"/r/{run_id}/share"]

    assert {stranger.get(base + path).status_code for path in paths} == {404}
    for name in ("ledger", "prices", "feedback", "retention"):
        assert stranger.get(f"/o/{workspace.pk}/settings/{name}").status_code == 404


def test_a_viewer_changes_nothing(viewer, workspace):
    run_id = stored_run(workspace)
    base = project_address(workspace, run_id)
    before = rows()

    answers = [
        viewer.post(f"{base}/selected", {"run": run_id, "action": "delete", "sure": "yes"}),
        viewer.post(f"{base}/views", {"name": "mine"}),
        viewer.post(f"{base}/settings", {"name": "other", "trace_tier": "longlived"}),
        viewer.post(f"{base}/delete", {"name": "default"}),
        viewer.post(f"{base}/r/{run_id}/feedback", {"key": "k", "score": "1"}),
        viewer.post(f"{base}/r/{run_id}/share"),
        viewer.post(f"/o/{workspace.pk}/settings/prices", {"name": "x"}),
        viewer.post(f"/o/{workspace.pk}/settings/feedback", {"key": "x"}),
        viewer.post(f"/o/{workspace.pk}/settings/retention", {}),
        viewer.post(f"/o/{workspace.pk}/projects/delete", {"project": "x"}),
    ]

    assert [answer.status_code for answer in answers] == [403] * len(answers)
    assert rows() == before
    assert not Feedback.unscoped.exists()
    assert not Share.unscoped.exists()
    assert not SavedView.unscoped.exists()
    assert not ModelPrice.unscoped.exists()


def test_the_list_is_what_the_filter_the_words_and_the_time_leave(page, workspace):
    now = datetime.now(UTC)
    base = project_address(workspace, stored_run(workspace, name="desk", tags=["vip"]))
    stored_run(workspace, name="fall", error="Boom")
    stored_run(workspace, name="old", start=now - timedelta(days=20))
    stored_run(workspace, name="lamp", inputs={"q": "the blue lamp"})

    assert names(page.get(base)) == ["lamp", "fall", "desk"]
    assert names(page.get(base, {"range": "all"}))[-1] == "old"
    assert names(page.get(base, {"filter": 'has(tags, "vip")'})) == ["desk"]
    assert names(page.get(base, {"q": "lamp"})) == ["lamp"]
    assert names(page.get(base, {"q": "lamp", "filter": 'eq(name, "desk")'})) == []
    assert names(page.get(base, {"sort": "start"})) == ["desk", "fall", "lamp"]
    past = {
        "from": (now - timedelta(days=21)).isoformat(),
        "to": (now - timedelta(days=19)).isoformat(),
    }
    assert names(page.get(base, past)) == ["old"]


def test_a_filter_that_is_not_understood_is_shown_at_its_column(page, workspace):
    base = project_address(workspace, stored_run(workspace))

    response = page.get(base, {"filter": 'eq(nme, "x")'})
    problem = response.context["list"].problem

    assert response.status_code == 422
    assert problem.line == 'eq(nme, "x")'
    assert problem.caret == "   ^"
    assert names(response) == []


def test_columns_are_chosen_ordered_and_remembered(page, workspace):
    run_id = stored_run(workspace, extra={"metadata": {"user_id": "u-7"}})
    base = project_address(workspace, run_id)

    chosen = ["latency", "name", "metadata.user_id", "nonsense"]
    page.post(f"{base}/columns", {"column": chosen, "up": "metadata.user_id"})
    response = page.get(base)

    keys = [column.key for column in response.context["columns"]]
    assert keys == ["latency", "metadata.user_id", "name"]
    assert response.context["list"].rows[0].cells[1][1] == "u-7"
    page.post(f"{base}/columns", {"usual": "1"})
    assert page.get(base).context["columns"][0].key == "name"


def test_a_view_is_saved_opened_renamed_and_deleted(page, workspace):
    base = project_address(workspace, stored_run(workspace, error="Boom"))
    stored_run(workspace, name="fine")
    only_errors = 'filter=eq(status,"error")'

    made = page.post(f"{base}/views", {"name": "Errors", "back": only_errors})
    opened = page.get(made["Location"])
    view = SavedView.unscoped.get()
    page.post(f"{base}/views", {"view": view.pk, "name": "Failed", "action": "update"})

    assert names(opened) == ["step"]
    assert opened.context["current_view"] == view
    view.refresh_from_db()
    assert (view.display_name, view.filter_string) == ("Failed", "")
    page.post(f"{base}/views", {"view": view.pk, "action": "delete"})
    assert not SavedView.unscoped.exists()


def test_a_view_keeps_its_time_and_opens_the_project(page, workspace):
    base = project_address(workspace, stored_run(workspace, error="Boom"))
    said = 'show=all&filter=eq(status,"error")&tree=eq(name,"step")&range=1d'
    page.post(f"{base}/views", {"name": "Errors", "back": said})
    view = SavedView.unscoped.get()

    page.post(f"{base}/views", {"view": view.pk, "action": "default"})
    bare = page.get(base)
    opened = page.get(bare["Location"]).context["state"]

    assert bare.status_code == 302
    assert (opened.show, opened.tree) == ("all", 'eq(name,"step")')
    assert (opened.filter, opened.period.key) == ('eq(status,"error")', "1d")
    assert page.get(f"{base}?view=all").status_code == 200
    page.post(f"{base}/views", {"view": view.pk, "action": "usual"})
    assert page.get(base).status_code == 200


def test_a_view_keeps_its_columns_and_they_are_changed_in_it(page, workspace):
    base = project_address(workspace, stored_run(workspace, error="Boom"))
    page.post(f"{base}/columns", {"column": ["name", "error"], "back": ""})
    made = page.post(f"{base}/views", {"name": "Errors", "back": "show=all"})["Location"]
    page.post(f"{base}/columns", {"usual": "1", "back": ""})

    opened = page.get(made)
    state = opened.context["state"]
    moved = page.post(
        f"{base}/columns", {"column": ["name", "error"], "add": "tags", "back": state.here[1:]}
    )["Location"]

    def shown(response):
        return [column.key for column in response.context["columns"]]

    assert shown(opened) == ["name", "error"]
    assert shown(page.get(moved)) == ["name", "error", "tags"]
    assert "latency" in shown(page.get(f"{base}?view=all"))
    view = SavedView.unscoped.get()
    saved = {"view": view.pk, "name": "Errors", "action": "update"}
    page.post(f"{base}/views", saved | {"back": page.get(moved).context["state"].here[1:]})
    view.refresh_from_db()
    assert json.loads(view.shown["columns"]) == ["name", "error", "tags"]
    assert page.get(f"{base}?columns=[[[").status_code == 200


def test_one_view_at_most_opens_a_project(page, workspace):
    base = project_address(workspace, stored_run(workspace))
    for name in ("first", "second"):
        page.post(f"{base}/views", {"name": name, "back": ""})
    views = {view.display_name: view.pk for view in SavedView.unscoped.all()}

    for name in ("first", "second", "second"):
        page.post(f"{base}/views", {"view": views[name], "action": "default"})

    chosen = SavedView.unscoped.filter(is_default=True)
    assert [view.display_name for view in chosen] == ["second"]


def test_runs_are_limited_by_their_trace(page, workspace):
    root = wire_run(name="desk", tags=["prod"])
    call = wire_run(root, name="call", error="Boom")
    ingest(workspace, root, call)
    base = project_address(workspace, stored_run(workspace, name="alone"))

    by_root = page.get(base, {"show": "all", "trace": 'has(tags, "prod")'})
    by_any = page.get(base, {"tree": 'eq(name, "call")'})
    wrong = page.get(base, {"tree": "eq(nme, 1)"})

    assert sorted(names(by_root)) == ["call", "desk"]
    assert names(by_any) == ["desk"]
    assert wrong.status_code == 422
    assert wrong.context["list"].problem.field == "tree"


def test_selected_traces_go_after_a_second_question(page, workspace):
    kept, gone = stored_run(workspace), stored_run(workspace, name="gone")
    base = project_address(workspace, kept)

    asked = page.post(f"{base}/selected", {"run": gone, "action": "delete"})
    assert rows() == 2
    page.post(f"{base}/selected", {"run": gone, "action": "delete", "sure": "yes"})

    assert b"Delete this trace?" in asked.content
    assert rows() == 1
    assert names(page.get(base)) == ["step"]


def test_runs_of_another_project_are_not_selected(page, workspace):
    here = stored_run(workspace, session_name="here")
    there = stored_run(workspace, session_name="there")

    base = project_address(workspace, here)
    page.post(f"{base}/selected", {"run": there, "action": "delete", "sure": "yes"})

    assert rows() == 2


def test_facets_count_and_lead_on(page, workspace):
    base = project_address(workspace, stored_run(workspace, name="desk", tags=["vip"]))
    stored_run(workspace, name="desk", error="Boom")
    stored_run(workspace, name="triage", extra={"metadata": {"user_id": "u-7"}})

    found = page.get(f"{base}/facets").context["facets"]
    by_title = {facet.title: {v.label: v.count for v in facet.values} for facet in found}
    name = next(v for f in found if f.title == "Name" for v in f.values if v.label == "triage")

    assert by_title["Name"] == {"desk": 2, "triage": 1}
    assert by_title["Status"] == {"success": 2, "error": 1}
    assert by_title["Tags"] == {"vip": 1}
    assert by_title["user_id"] == {"u-7": 1}
    assert names(page.get(base + name.address)) == ["triage"]
    both = page.get(f"{base}/facets{name.address}").context["facets"]
    chosen = next(facet for facet in both if facet.title == "Name")
    assert [(v.label, v.is_chosen) for v in chosen.values] == [("desk", False), ("triage", True)]


def test_the_strip_counts_what_the_list_shows(page, workspace):
    base = project_address(workspace, stored_run(workspace))
    stored_run(workspace, error="Boom")

    count, latency = page.get(f"{base}/strip").context["charts"]

    assert [sum(line.values) for line in count.lines] == [1, 1]
    assert max(value or 0 for value in latency.lines[0].values) == pytest.approx(1.0, rel=0.02)
    data = json.loads(bytes(count.data))
    assert len(data["times"]) == len(data["series"][0]["values"])


def test_feedback_is_given_with_one_press_or_in_full_and_taken_back(page, workspace):
    run_id = stored_run(workspace)
    address = f"{project_address(workspace, run_id)}/r/{run_id}"

    page.post(f"{address}/feedback", {"give": "helpful=1"})
    page.post(f"{address}/feedback", {"key": "tone", "comment": "Kind.", "correction": '{"a": 1}'})
    refused = page.post(f"{address}/feedback", {"key": "empty"}, headers={"HX-Request": "true"})
    said = {one.key: one for one in Feedback.unscoped.all()}

    assert said.keys() == {"helpful", "tone"}
    assert (said["helpful"].score, said["helpful"].source_type) == (1.0, "app")
    assert (said["tone"].comment, said["tone"].correction) == ("Kind.", {"a": 1})
    assert refused.status_code == 422
    page.post(f"{address}/feedback/{said['tone'].pk}/delete")
    assert [one.key for one in Feedback.unscoped.all()] == ["helpful"]


def test_a_shared_trace_is_open_until_it_is_not(page, workspace):
    root = wire_run(name="desk")
    leaf = wire_run(root, name="ask", run_type="llm", outputs={"text": "held"})
    ingest(workspace, root, leaf)
    base = project_address(workspace, root["id"])

    page.post(f"{base}/r/{root['id']}/share")
    address = f"/public/{Share.unscoped.get().token}/r"
    anonymous = Client(headers={"Accept": "text/html"})
    opened = anonymous.get(address)
    inner = anonymous.get(f"{address}/{leaf['id']}", headers={"HX-Request": "true"})
    page.post(f"{base}/r/{root['id']}/share", {"action": "stop"})

    assert opened.status_code == 200
    assert opened["X-Robots-Tag"] == "noindex, nofollow"
    content = opened.content.decode()
    assert "desk" in content
    assert str(workspace.pk) not in content
    assert str(read(workspace, root["id"]).row.project_id) not in content
    assert "held" in inner.content.decode()
    assert anonymous.get(address).status_code == 404
    assert anonymous.get(f"{address}/{leaf['id']}").status_code == 404


def test_a_link_opens_no_run_of_another_trace(page, workspace):
    shared, other = stored_run(workspace), stored_run(workspace)
    page.post(f"{project_address(workspace, shared)}/r/{shared}/share")
    token = Share.unscoped.get().token

    assert Client().get(f"/public/{token}/r/{other}").status_code == 404


def test_a_thread_is_its_turns_without_what_was_said_before(page, workspace):
    said = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "first"}]
    more = [{"role": "user", "content": "two"}, {"role": "assistant", "content": "second"}]
    thread = {"extra": {"metadata": {"thread_id": "t/1"}}}
    start = datetime.now(UTC) - timedelta(minutes=5)
    first = stored_run(
        workspace, start=start, inputs={"messages": said[:1]}, outputs={"messages": said}, **thread
    )
    stored_run(
        workspace,
        start=start + timedelta(minutes=1),
        inputs={"messages": [*said, more[0]]},
        outputs={"messages": [*said, *more]},
        **thread,
    )
    base = project_address(workspace, first)

    turns = page.get(f"{base}/thread", {"thread": "t/1"}).context["thread"].turns
    listed = page.get(f"{base}/threads").context["list"]

    words = [[p.text for m in (*t.new_inputs, *t.new_outputs) for p in m.parts] for t in turns]
    assert words == [["one", "first"], ["two", "second"]]
    assert [(one.row.thread_key, one.row.figures.runs) for one in listed.threads] == [("t/1", 2)]
    assert page.get(f"{base}/thread", {"thread": "none"}).status_code == 404


def test_what_the_list_shows_can_be_taken_away(page, workspace):
    run_id = stored_run(workspace, name="desk")
    base = project_address(workspace, run_id)
    stored_run(workspace, name="other")

    lines = page.get(f"{base}/download", {"filter": 'eq(name, "desk")'}).getvalue().splitlines()
    trace = page.get(f"{base}/r/{run_id}/download?whole=1").getvalue().splitlines()

    assert [json.loads(line)["id"] for line in lines] == [str(run_id)]
    assert [json.loads(line)["outputs"] for line in trace] == [{"answer": "because"}]


def test_two_runs_stand_side_by_side(page, workspace):
    first, second = stored_run(workspace, name="desk"), stored_run(workspace, name="triage")
    base = project_address(workspace, first)

    chosen = page.post(f"{base}/selected", {"run": [first, second], "action": "compare"})
    both = page.get(chosen["Location"])
    alone = page.get(f"{base}/compare?a={first}")

    assert [side.row.id for side in both.context["sides"]] == [first, second]
    assert [row.id for row in alone.context["candidates"]] == [second]
    assert page.get(f"{base}/compare?a=nonsense").status_code == 404


def test_the_dashboard_counts_and_groups(page, workspace):
    base = project_address(workspace, stored_run(workspace, name="desk"))
    stored_run(workspace, name="triage", error="Boom")

    asked = {"group": "name", "compare": "1"}
    plain = page.get(f"{base}/monitoring?whole=1").context["dashboard"]
    grouped = page.get(f"{base}/monitoring", asked, headers=FRAGMENT).context["dashboard"]
    ungrouped = page.get(f"{base}/monitoring", asked)

    assert [(f.name, f.value) for f in plain.figures[:2]] == [
        ("Traces", "2"),
        ("Error rate", "50 %"),
    ]
    lines = grouped.sections[0].charts[0].lines
    assert {line.name: sum(v or 0 for v in line.values) for line in lines} == {
        "desk": 1,
        "triage": 1,
    }
    assert "filter=eq%28name%2C+%22desk%22%29" in lines[0].href
    assert "dashboard" not in ungrouped.context


def test_figures_of_a_grouped_dashboard_are_those_of_all_traces(page, workspace):
    base = project_address(workspace, stored_run(workspace, name="desk"))
    stored_run(workspace, extra={"metadata": {"tier": "gold"}})

    asked = {"group": "metadata", "path": "tier"}
    found = page.get(f"{base}/monitoring", asked, headers=FRAGMENT).context["dashboard"]

    assert [line.name for line in found.sections[0].charts[0].lines] == ["gold"]
    assert found.figures[0].value == "2"


def test_a_project_is_renamed_and_deleted_by_its_name(page, workspace):
    base = project_address(workspace, stored_run(workspace, session_name="planner"))
    stored_run(workspace, session_name="taken")
    said = {"description": "Plans.", "trace_tier": "shortlived"}

    clash = page.post(f"{base}/settings", {"name": "taken"} | said)
    page.post(f"{base}/settings", {"name": "plans"} | said)
    page.post(f"{base}/delete", {"name": "planner"})
    project = Project.unscoped.get(pk=base.rpartition("/")[2])

    assert clash.status_code == 422
    assert (project.name, project.trace_tier, project.deleted_at) == ("plans", "shortlived", None)
    page.post(f"{base}/delete", {"name": "plans"})
    assert page.get(base).status_code == 404


def test_several_projects_go_when_their_number_is_typed(page, workspace):
    for name in ("a", "b", "c"):
        stored_run(workspace, session_name=name)
    ids = {p.name: p.pk for p in Project.unscoped.all()}
    address = f"/o/{workspace.pk}/projects/delete"
    chosen = {"project": [ids["a"], ids["b"]]}

    assert page.post(address, chosen).status_code == 200
    assert page.post(address, chosen | {"sure": "3 projects"}).status_code == 422
    page.post(address, chosen | {"sure": "2 projects"})

    rows = page.get(f"/o/{workspace.pk}/projects").context["rows"]
    assert [row.project.name for row in rows] == ["c"]


def test_the_ledger_tells_what_came(page, workspace):
    stored_run(workspace, session_name="planner")

    row = page.get(f"/o/{workspace.pk}/settings/ingest-log").context["rows"][0]

    assert (row.project_name, row.stored, row.received, row.refused) == ("planner", 1, 1, 0)


def test_a_price_is_added_changed_and_deleted(workspace):
    admin = signed_in(person(workspace, "admin"))
    address = f"/o/{workspace.pk}/settings/prices"
    said = {"name": "ours", "match_pattern": "^ours", "prompt_cost": "2.5", "completion_cost": "10"}

    bad = admin.post(address, said | {"match_pattern": "(("})
    admin.post(address, said)
    price = ModelPrice.unscoped.get()
    admin.post(f"{address}?price={price.pk}", said | {"prompt_cost": "3"})
    price.refresh_from_db()

    assert bad.status_code == 422
    assert price.prompt_cost * 1_000_000 == 3
    admin.post(f"{address}/{price.pk}/delete")
    assert not ModelPrice.unscoped.exists()


@pytest.mark.parametrize(
    "path", ["", "/facets", "/strip", "/monitoring", "/threads", "/r/{run}", "/settings"]
)
def test_pages_cost_the_same_however_much_there_is(page, workspace, path):
    run_id = stored_run(workspace, extra={"metadata": {"thread_id": "t-1"}})
    where = project_address(workspace, run_id) + path.format(run=run_id)

    def queries():
        page.get(where)
        with CaptureQueriesContext(connection) as captured:
            assert page.get(where).status_code == 200
        return len(captured)

    with_one = queries()
    for number in range(5):
        stored_run(workspace, extra={"metadata": {"thread_id": f"t-{number}"}})

    assert queries() == with_one


def test_a_wrong_filter_is_told_with_its_column(page, workspace):
    base = project_address(workspace, stored_run(workspace))

    shown = page.get(base, {"filter": 'and(eq(name, "a"), gt(latency))'}).text

    assert '<code class="inline">gt</code> takes a field and one value' in shown
    assert "Column 20." in shown


def test_what_was_never_told_is_no_zero(page, workspace):
    run_id = stored_run(workspace, run_type="llm")
    project_id = read(workspace, run_id).row.project_id

    query = RunQuery(project_ids=[project_id])
    told = run_store.aggregate(workspace.pk, MetricsQuery(query=query)).whole

    assert told.quantile(Measure.FIRST_TOKEN, 0.5) is None
    assert told.quantile(Measure.LATENCY, 0.5) == 1
