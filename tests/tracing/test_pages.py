"""The tracing pages over HTTP: content, rejected input and number of queries."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs
from uuid import UUID

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from apps.feedback.models import Feedback
from apps.organizations.models import User
from apps.trace_store import RunQuery, run_store
from apps.trace_store.aggregation import MetricsQuery
from apps.trace_store.metrics import Measure
from apps.trace_store.models import ModelPrice
from apps.tracing.models import Project, SavedView, Share
from apps.tracing.pages import number_facets, query_clauses
from apps.tracing.pages.columns import STANDARD_COLUMNS
from apps.tracing.pages.projects import STATS_DAYS
from apps.tracing.pages.run_list import RUNS_PER_PAGE
from apps.tracing.services import saved_views
from apps.tracing.views.workspace_settings import PRICES_PER_PAGE
from apps.web_ui import time_zone
from tests.console.conftest import create_workspace_user, signed_in
from tests.factories.organizations import WorkspaceFactory
from tests.factories.tracing import (
    count_stored_runs,
    ingest,
    read_run,
    start_fields,
    stored_run,
    wire_run,
)

pytestmark = pytest.mark.django_db
FRAGMENT = {"HX-Request": "true"}


@pytest.fixture
def viewer(workspace) -> Client:
    return signed_in(create_workspace_user(workspace, "viewer"))


def project_url(workspace, run_id):
    project_id = read_run(workspace, run_id).row.project_id
    return f"/o/{workspace.pk}/projects/p/{project_id}"


def run_names(response):
    return [listed.row.name for listed in response.context["list"].rows]


def test_an_outsider_gets_404_on_every_page(workspace):
    run_id = stored_run(workspace)
    base = project_url(workspace, run_id)
    outsider = signed_in(create_workspace_user(WorkspaceFactory(), "admin"))

    paths = ["", "/facets", "/strip", "/values?field=name", "/monitoring", "/threads", "/settings"]
    paths += [f"/compare?a={run_id}", "/thread?thread=t", "/download", f"/r/{run_id}"]
    paths += [f"/r/{run_id}/tree.json", f"/r/{run_id}/download", f"/r/{run_id}/share"]

    assert {outsider.get(base + path).status_code for path in paths} == {404}
    for name in ("ingest-log", "prices", "feedback", "retention"):
        assert outsider.get(f"/o/{workspace.pk}/settings/{name}").status_code == 404


def test_a_viewer_changes_nothing(viewer, workspace):
    run_id = stored_run(workspace)
    base = project_url(workspace, run_id)
    before = count_stored_runs()

    responses = [
        viewer.post(f"{base}/selected", {"run": run_id, "action": "delete", "confirmation": "yes"}),
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

    assert [response.status_code for response in responses] == [403] * len(responses)
    assert count_stored_runs() == before
    assert not Feedback.unscoped.exists()
    assert not Share.unscoped.exists()
    assert not SavedView.unscoped.exists()
    assert not ModelPrice.unscoped.exists()


def test_the_list_is_limited_by_filter_search_and_time(page, workspace):
    now = datetime.now(UTC)
    base = project_url(workspace, stored_run(workspace, name="desk", tags=["vip"]))
    stored_run(workspace, name="fall", error="Boom")
    stored_run(workspace, name="old", start=now - timedelta(days=20))
    stored_run(workspace, name="lamp", inputs={"q": "the blue lamp"})

    assert run_names(page.get(base)) == ["lamp", "fall", "desk"]
    assert run_names(page.get(base, {"range": "all"}))[-1] == "old"
    assert run_names(page.get(base, {"filter": 'has(tags, "vip")'})) == ["desk"]
    assert run_names(page.get(base, {"q": "lamp"})) == ["lamp"]
    assert run_names(page.get(base, {"q": "lamp", "filter": 'eq(name, "desk")'})) == []
    assert run_names(page.get(base, {"sort": "start"})) == ["desk", "fall", "lamp"]
    past = {
        "from": (now - timedelta(days=21)).isoformat(),
        "to": (now - timedelta(days=19)).isoformat(),
    }
    assert run_names(page.get(base, past)) == ["old"]


def test_an_invalid_query_is_named_and_not_applied(page, workspace):
    base = project_url(workspace, stored_run(workspace, name="desk", error="Boom"))
    stored_run(workspace, name="lamp")

    response = page.get(base, {"query": "latancy:>2s", "root": "status:error"})
    problem = response.context["list"].problem

    assert response.status_code == 200
    assert (problem.fault, problem.suggestion) == ("latancy", "latency:>2s")
    assert 'Unknown field <code class="inline">latancy</code>. Did you mean' in response.text
    assert 'value="latancy:&gt;2s"' in response.text
    assert run_names(response) == ["desk"]
    fixed = page.get(base + response.context["state"].fixed_url)
    assert fixed.context["state"].query_text == "latency:>2s"
    assert fixed.context["list"].problem is None
    for part in ("strip", "facets", "hints"):
        assert page.get(f"{base}/{part}", {"query": "latancy:>2s"}).status_code == 200


def test_an_invalid_filter_of_the_api_is_named_and_not_applied(page, workspace):
    base = project_url(workspace, stored_run(workspace, name="desk", error="Boom"))
    stored_run(workspace, name="lamp")

    response = page.get(base, {"filter": 'eq(nme, "x")', "trace": 'eq(status, "error")'})

    assert response.status_code == 200
    assert 'There is no field <code class="inline">nme</code>.' in response.text
    assert "line 1, column 4" in response.text
    assert run_names(response) == ["desk"]


def test_filters_of_older_links_are_shown_as_a_query(page, workspace):
    base = project_url(workspace, stored_run(workspace, name="desk", tags=["vip"]))
    stored_run(workspace, name="lamp", tags=["vip"])
    where = 'and(has(tags, "vip"), gt(latency, "500ms"), eq(status, "success"), like(name, "d%"))'

    response = page.get(base, {"filter": where, "q": "because"})
    state = response.context["state"]

    assert state.query_text == "tag:vip latency:>500ms status:success because"
    assert state.filter == 'like(name, "d%")'
    assert run_names(response) == ["desk"]
    assert run_names(page.get(base + state.current_url)) == ["desk"]
    assert [text for _, text, _ in state.clauses] == [
        "tag:vip", "latency:>500ms", "status:success", "because", 'like(name, "d%")',
    ]  # fmt: skip
    assert run_names(page.get(base + state.clauses[-1][2])) == ["lamp", "desk"]


def test_a_list_without_runs_names_the_lists_that_have_some(page, workspace):
    now = datetime.now(UTC)
    base = project_url(workspace, stored_run(workspace, name="desk", tags=["vip"]))
    stored_run(workspace, name="lamp")
    stored_run(workspace, name="lamp", tags=["vip"], start=now - timedelta(days=20))

    empty = page.get(base, {"query": "tag:vip name:lamp"})
    hints = page.get(f"{base}/hints", {"query": "tag:vip name:lamp"})

    assert run_names(empty) == []
    assert f"{base}/hints?query=tag%3Avip" in empty.text
    found = [(hint.count, hint.without) for hint in hints.context["hints"]]
    assert found == [(1, "tag:vip"), (1, "name:lamp"), (1, "")]
    urls = [hint.url for hint in hints.context["hints"]]
    assert [run_names(page.get(base + url)) for url in urls] == [["lamp"], ["desk"], ["lamp"]]


def test_a_query_is_copied_as_filter_and_request_of_the_api(page, workspace):
    run_id = stored_run(workspace, name="desk")
    base = project_url(workspace, run_id)

    text = page.get(base, {"query": "name:desk latency:>500ms"}).text

    assert "and(eq(name, &quot;desk&quot;), gt(latency, 0.500))" in text
    assert "/api/v1/runs/query" in text


def test_the_search_finds_longer_words_before_and_after_processing(page, workspace):
    base = project_url(workspace, stored_run(workspace, name="a", inputs={"q": "Refunds"}))
    stored_run(workspace, name="b", outputs={"text": "an internationalised label"})

    def names_for(text):
        return run_names(page.get(base, {"q": text}))

    def search():
        texts = ("refu", "REFUND", "refunds", "efunds", "ref", "internation", "internal", "an lab")
        return {text: names_for(text) for text in texts}

    pending = search()
    run_store.process_pending()

    expected = {"refu": ["a"], "REFUND": ["a"], "refunds": ["a"], "efunds": [], "ref": []}
    expected |= {"internation": ["b"], "internal": [], "an lab": []}
    assert pending == expected
    assert search() == expected


@pytest.mark.parametrize("path", ["", "/threads"])
def test_a_search_without_a_word_is_reported_and_not_applied(page, workspace, path):
    thread = {"extra": {"metadata": {"thread_id": "t-1"}}}
    base = project_url(workspace, stored_run(workspace, name="desk", **thread))

    response = page.get(f"{base}{path}", {"q": "?!"})

    assert response.status_code == 200
    assert "A search needs at least one letter or digit." in response.text
    assert ("t-1" if path else "desk") in response.text
    assert 'value="?!"' in response.text


def test_an_invalid_query_keeps_the_list_of_threads(page, workspace):
    thread = {"extra": {"metadata": {"thread_id": "t-1"}}}
    base = project_url(workspace, stored_run(workspace, **thread))

    response = page.get(f"{base}/threads", {"query": "nme:x"})

    assert response.status_code == 200
    assert "This query is not applied." in response.text
    assert "t-1" in response.text


def test_words_without_a_condition_are_searched(page, workspace):
    base = project_url(workspace, stored_run(workspace, name="desk"))
    stored_run(workspace, name="lamp")

    response = page.get(base, {"filter": "lamp"})

    assert run_names(response) == ["lamp"]
    state = response.context["state"]
    assert (state.filter, state.query_text) == ("", "lamp")


def test_days_of_a_query_are_those_of_the_users_zone(page, workspace):
    page.cookies[time_zone.COOKIE] = "Europe/Berlin"
    base = project_url(workspace, stored_run(workspace))

    text = page.get(base, {"query": "start:>=2026-01-31"}).text

    assert "gte(start_time, &quot;2026-01-30T23:00:00+00:00&quot;)" in text


def test_values_are_suggested_for_the_listed_runs(page, workspace):
    root = wire_run(name="desk", extra={"metadata": {"user": "u-7", "tier": "gold"}})
    model = {"metadata": {"ls_model_name": "m-2"}}
    ingest(workspace, root, wire_run(root, name="ask", run_type="llm", extra=model))
    base = project_url(workspace, root["id"])

    def suggest(**params):
        values = page.get(f"{base}/values", params).json()["values"]
        return {value["text"]: value["note"] for value in values}

    assert suggest(field="name") == {"desk": "1"}
    assert suggest(field="name", show="all") == {"ask": "1", "desk": "1"}
    assert suggest(field="name", range="15m") == {"desk": "1"}
    assert suggest(field="status") == {"success": "1"}
    assert suggest(field="model") == {"m-2": "1"}
    assert suggest(field="metadata.user") == {"u-7": "1"}
    assert suggest(field="user") == {"u-7": "1"}
    assert suggest(field="metadata.") == {"metadata.user:": "1", "metadata.tier:": "1"}
    latencies = page.get(f"{base}/values", {"field": "latency"}).json()["values"]
    assert [value["note"] for value in latencies] == ["p50", "p95", "p99"]
    assert all(value["text"].startswith(">") for value in latencies)
    assert suggest(field="thread") == {}
    listed = page.get(base, {"show": "all", "range": "1d", "query": "desk"}).text
    assert '/values?show=all&amp;range=1d"' in listed


def test_columns_are_selected_ordered_and_remembered(page, workspace):
    run_id = stored_run(workspace, extra={"metadata": {"user_id": "u-7"}})
    base = project_url(workspace, run_id)

    chosen = ["latency", "name", "metadata.user_id", "nonsense"]
    page.post(f"{base}/columns", {"column": chosen, "up": "metadata.user_id"})
    response = page.get(base)

    keys = [column.key for column in response.context["columns"]]
    assert keys == ["latency", "metadata.user_id", "name"]
    assert response.context["list"].rows[0].cells[1][1] == "u-7"
    page.post(f"{base}/columns", {"reset": "1"})
    assert page.get(base).context["columns"][0].key == "name"


def test_a_view_is_saved_opened_renamed_and_deleted(page, workspace):
    base = project_url(workspace, stored_run(workspace, error="Boom"))
    stored_run(workspace, name="fine")
    only_errors = 'filter=eq(status,"error")'

    saved = page.post(f"{base}/views", {"name": "Errors", "back": only_errors})
    opened = page.get(saved["Location"])
    view = SavedView.unscoped.get()
    page.post(f"{base}/views", {"view": view.pk, "name": "Failed", "action": "update"})

    assert run_names(opened) == ["step"]
    assert opened.context["current_view"] == view
    view.refresh_from_db()
    assert (view.display_name, view.filter_string) == ("Failed", "")
    assert "query" not in view.shown
    page.post(f"{base}/views", {"view": view.pk, "action": "delete"})
    assert not SavedView.unscoped.exists()


def test_all_views_that_a_project_may_have_are_listed(page, workspace):
    base = project_url(workspace, stored_run(workspace, error="Boom"))
    project = Project.unscoped.get(pk=base.rpartition("/")[2])
    views = [
        SavedView(workspace=workspace, project=project, display_name=f"view {number:03}")
        for number in range(saved_views.MAX_VIEWS)
    ]
    SavedView.unscoped.bulk_create(views)

    opened = page.get(base, {"view": str(views[-1].pk)})

    assert opened.context["current_view"] == views[-1]
    assert len(opened.context["saved_views"]) == saved_views.MAX_VIEWS


def test_a_default_view_keeps_its_time_and_opens_with_the_project(page, workspace):
    base = project_url(workspace, stored_run(workspace, error="Boom"))
    query = 'show=all&filter=eq(status,"error")&tree=eq(name,"step")&range=1d'
    page.post(f"{base}/views", {"name": "Errors", "back": query})
    view = SavedView.unscoped.get()

    page.post(f"{base}/views", {"view": view.pk, "action": "default"})
    bare = page.get(base)
    opened = page.get(bare["Location"]).context["state"]

    assert bare.status_code == 302
    assert (opened.show, opened.any_text) == ("all", "name:step")
    assert (opened.query_text, opened.period.key) == ("status:error", "1d")
    view.refresh_from_db()
    assert view.filter_string == 'eq(status, "error")'
    assert view.tree_filter_string == 'eq(name, "step")'
    assert page.get(f"{base}?view=all").status_code == 200
    page.post(f"{base}/views", {"view": view.pk, "action": "remove-default"})
    assert page.get(base).status_code == 200


def test_a_view_keeps_its_columns_and_saves_changed_columns(page, workspace):
    base = project_url(workspace, stored_run(workspace, error="Boom"))
    page.post(f"{base}/columns", {"column": ["name", "error"], "back": ""})
    view_url = page.post(f"{base}/views", {"name": "Errors", "back": "show=all"})["Location"]
    page.post(f"{base}/columns", {"reset": "1", "back": ""})

    opened = page.get(view_url)
    state = opened.context["state"]
    changed_url = page.post(
        f"{base}/columns",
        {"column": ["name", "error"], "add": "tags", "back": state.current_url[1:]},
    )["Location"]

    def column_keys(response):
        return [column.key for column in response.context["columns"]]

    assert column_keys(opened) == ["name", "error"]
    assert column_keys(page.get(changed_url)) == ["name", "error", "tags"]
    assert "latency" in column_keys(page.get(f"{base}?view=all"))
    view = SavedView.unscoped.get()
    saved = {"view": view.pk, "name": "Errors", "action": "update"}
    page.post(
        f"{base}/views", saved | {"back": page.get(changed_url).context["state"].current_url[1:]}
    )
    view.refresh_from_db()
    assert json.loads(view.shown["columns"]) == ["name", "error", "tags"]
    assert page.get(f"{base}?columns=[[[").status_code == 200


def test_a_project_has_at_most_one_default_view(page, workspace):
    base = project_url(workspace, stored_run(workspace))
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
    base = project_url(workspace, stored_run(workspace, name="alone"))

    by_root = page.get(base, {"show": "all", "trace": 'has(tags, "prod")'})
    by_any = page.get(base, {"tree": 'eq(name, "call")'})
    wrong = page.get(base, {"tree": "eq(nme, 1)"})

    assert sorted(run_names(by_root)) == ["call", "desk"]
    assert run_names(by_any) == ["desk"]
    assert wrong.status_code == 200
    assert wrong.context["list"].problem.field == "tree"


def test_selected_traces_are_deleted_after_a_confirmation(page, workspace):
    kept, gone = stored_run(workspace), stored_run(workspace, name="gone")
    base = project_url(workspace, kept)

    confirmation = page.post(f"{base}/selected", {"run": gone, "action": "delete"})
    assert count_stored_runs() == 2
    page.post(f"{base}/selected", {"run": gone, "action": "delete", "confirmation": "yes"})

    assert b"Delete this trace?" in confirmation.content
    assert count_stored_runs() == 1
    assert run_names(page.get(base)) == ["step"]


def test_runs_of_another_project_are_not_selected(page, workspace):
    here = stored_run(workspace, session_name="here")
    there = stored_run(workspace, session_name="there")

    base = project_url(workspace, here)
    page.post(f"{base}/selected", {"run": there, "action": "delete", "confirmation": "yes"})

    assert count_stored_runs() == 2


def test_facets_name_the_runs_that_they_count(page, workspace, monkeypatch):
    monkeypatch.setattr("apps.tracing.services.facets.SAMPLE_SIZE", 2)
    for _ in range(3):
        run_id = stored_run(workspace, name="desk", tags=["vip"])

    response = page.get(f"{project_url(workspace, run_id)}/facets")
    notes = {facet.title: facet.note for facet in response.context["facets"]}

    assert notes == {"Status": "", "Name": "", "Tags": "of the newest 2"}
    assert "of the newest" in response.content.decode()


def test_facets_fold_the_metadata_of_sdks_and_servers_below_that_of_the_user(page, workspace):
    technical = dict.fromkeys(("run_id", "thread_id", "a2a_task", "graph_id"), "x")
    metadata = {"ls_provider": "x"} | technical
    deployment = {"LANGSMITH_HOST_PROJECT_NAME": "desk", "revision_id": "7"}
    stored_run(workspace, extra={"metadata": metadata | deployment}, tags=["vip"])
    run_id = stored_run(workspace, extra={"metadata": metadata | {"user_id": "u-7"}})
    base = project_url(workspace, run_id)

    response = page.get(f"{base}/facets")
    selected = page.get(f"{base}/facets", {"query": "metadata.graph_id:x"})

    titles = [facet.title for facet in response.context["facets"]]
    folded = {facet.title for facet in response.context["technical_facets"]}
    assert titles == ["Status", "Name", "Tags", "Deployment", "Revision", "user_id"]
    assert folded == {"ls_provider", *technical}
    assert "<summary>Technical</summary>" in response.text
    assert "graph_id" in [facet.title for facet in selected.context["facets"]]
    still_folded = {facet.title for facet in selected.context["technical_facets"]}
    assert still_folded == folded - {"graph_id"}


def test_deployment_and_revision_are_fields_and_facets(page, workspace):
    metadata = {"LANGSMITH_HOST_PROJECT_NAME": "support desk", "revision_id": "7"}
    stored_run(workspace, name="other")
    base = project_url(workspace, stored_run(workspace, extra={"metadata": metadata}, name="own"))

    facets = page.get(f"{base}/facets").context["facets"]
    urls = {facet.title: facet.values[0].url for facet in facets}

    assert parse_qs(urls["Deployment"][1:])["query"] == ['deployment:"support desk"']
    assert parse_qs(urls["Revision"][1:])["query"] == ["revision:7"]
    for title in ("Deployment", "Revision"):
        response = page.get(f"{base}{urls[title]}")
        assert [listed.row.name for listed in response.context["list"].rows] == ["own"]


@pytest.mark.parametrize(
    ("value", "measure", "text"),
    [
        (0, Measure.LATENCY, "0s"),
        (0.0004, Measure.LATENCY, "0.4ms"),
        (0.25, Measure.LATENCY, "250ms"),
        (90, Measure.LATENCY, "90s"),
        (2500, Measure.LATENCY, "41.7m"),
        (9000, Measure.FIRST_TOKEN, "2.5h"),
        (12_000, Measure.TOTAL_TOKENS, "12000"),
        (0.00012, Measure.TOTAL_COST, "$0.00012"),
        (1200, Measure.TOTAL_COST, "$1200"),
    ],
)
def test_bound_of_a_number_facet_is_a_text_of_the_query(value, measure, text):
    field = "cost" if text.startswith("$") else "tokens" if text.isdigit() else "latency"

    assert number_facets.format_bound(value, measure) == text
    assert query_clauses.parse_error(f"{field}:{text}..") is None


def test_number_facets_show_a_histogram_and_the_selected_range(page, workspace):
    for seconds in (0.1, 0.2, 0.2, 3, 30):
        end = (datetime.now(UTC) - timedelta(minutes=5)).replace(microsecond=0)
        run_id = stored_run(
            workspace,
            start=end - timedelta(seconds=seconds),
            end_time=end.isoformat(),
            session_name="desk",
        )
    base = project_url(workspace, run_id)

    def load(query):
        response = page.get(f"{base}/facets", {"query": query})
        return {facet.name: facet for facet in response.context["number_facets"]}

    plain, limited = load("name:*"), load("name:* latency:2s..40s")

    latency = plain["latency"]
    assert (latency.bounds[0], latency.bounds[-1]) == ("100ms", "30s")
    assert not latency.is_selected
    assert parse_qs(latency.url[1:])["query"] == ["name:*"]
    assert sorted(bar.height for bar in latency.bars if bar.height) == [12, 12, 12, 24]
    assert [bar.height for bar in limited["latency"].bars] == [bar.height for bar in latency.bars]
    assert limited["latency"].is_selected
    assert (latency.labels[0], latency.labels[-1]) == ("100 ms", "30.0 s")
    assert "100 ms" in page.get(f"{base}/facets").text
    assert limited["latency"].low_text.endswith(" s")
    assert limited["latency"].high_text == "30.0 s"
    assert parse_qs(limited["latency"].url[1:])["query"] == ["name:*"]
    assert "cost" not in plain
    assert load("name:a OR name:b") == {}
    alternatives = load("status:success OR name:b")["latency"]
    assert parse_qs(alternatives.url[1:])["query"] == ["(status:success OR name:b)"]


def test_scope_of_the_bar_moves_its_query_to_another_run_of_the_trace(page, workspace):
    root = wire_run(name="desk")
    ingest(workspace, root, wire_run(parent=root, name="search", run_type="tool"))
    ingest(workspace, wire_run(name="other"))
    base = project_url(workspace, UUID(root["id"]))

    state = page.get(base, {"query": "type:tool"}).context["state"]
    choices = {label: url for label, url, _ in state.scope_choices}
    listed = page.get(f"{base}{choices['Any run of its trace']}")

    assert list(choices) == ["Root run", "Any run of its trace"]
    assert [item.row.name for item in listed.context["list"].rows] == ["desk"]
    moved = listed.context["state"]
    assert (moved.main_query.name, moved.main_query.text) == ("any", "type:tool")
    assert [row.name for row in moved.other_queries] == ["query"]
    back = {label: url for label, url, _ in moved.scope_choices}["Root run"]
    assert parse_qs(back[1:])["query"] == ["type:tool"]
    assert "any" not in parse_qs(back[1:])
    assert parse_qs(moved.threads_query)["query"] == ["type:tool"]
    runs = page.get(base, {"show": "all", "scope": "root"}).context["state"]
    assert runs.main_query.label == "Root of its trace"
    assert page.get(base, {"scope": "nothing"}).context["state"].scope == ""


def test_facets_count_values_and_link_to_filtered_lists(page, workspace):
    base = project_url(workspace, stored_run(workspace, name="desk", tags=["vip"]))
    stored_run(workspace, name="desk", error="Boom")
    stored_run(workspace, name="triage", extra={"metadata": {"user_id": "u-7"}})

    facets = page.get(f"{base}/facets").context["facets"]
    by_title = {
        facet.title: {value.label: value.count for value in facet.values} for facet in facets
    }
    name = next(
        value
        for facet in facets
        if facet.title == "Name"
        for value in facet.values
        if value.label == "triage"
    )

    assert by_title["Name"] == {"desk": 2, "triage": 1}
    assert by_title["Status"] == {"Success": 2, "Error": 1}
    assert by_title["Tags"] == {"vip": 1}
    assert by_title["user_id"] == {"u-7": 1}
    assert run_names(page.get(base + name.url)) == ["triage"]
    both = page.get(f"{base}/facets{name.url}").context["facets"]
    chosen = next(facet for facet in both if facet.title == "Name")
    assert [(value.label, value.is_selected) for value in chosen.values] == [
        ("desk", False),
        ("triage", True),
    ]


def test_the_strip_counts_the_listed_runs(page, workspace):
    base = project_url(workspace, stored_run(workspace))
    stored_run(workspace, error="Boom")

    count, latency = page.get(f"{base}/strip").context["charts"]

    assert [(line.name, line.hue, sum(line.values)) for line in count.lines] == [
        ("Success", "1", 1), ("Error", "error", 1),
    ]  # fmt: skip
    assert max(value or 0 for value in latency.lines[0].values) == pytest.approx(1.0, rel=0.02)
    data = json.loads(bytes(count.data))
    assert len(data["times"]) == len(data["series"][0]["values"])


def test_control_flow_has_marks_of_its_own_and_is_no_error(page, workspace):
    base = project_url(workspace, stored_run(workspace))
    errors = {
        "waits": "GraphInterrupt((Interrupt(value='send it?'),))",
        "stops": "CancelledError()",
    }
    ids = {name: stored_run(workspace, name=name, error=text) for name, text in errors.items()}

    [count, _] = page.get(f"{base}/strip").context["charts"]
    facets = page.get(f"{base}/facets").context["facets"]
    [statuses] = [facet for facet in facets if facet.title == "Status"]
    [waiting] = [value for value in statuses.values if value.label == "Interrupted"]
    listed = page.get(base).content.decode()
    details = {name: page.get(f"{base}/r/{ids[name]}").content.decode() for name in ids}

    assert [(line.name, sum(line.values)) for line in count.lines] == [
        ("Success", 1), ("Error", 0), ("Interrupted", 1), ("Cancelled", 1),
    ]  # fmt: skip
    assert [line.hue for line in count.lines[2:]] == ["waiting", "warning"]
    counts = {value.label: value.count for value in statuses.values}
    assert counts == {"Success": 1, "Interrupted": 1, "Cancelled": 1}
    assert run_names(page.get(base + waiting.url)) == ["waits"]
    assert run_names(page.get(base + count.lines[3].href)) == ["stops"]
    assert "Interrupted" in listed
    assert "Cancelled" in listed
    assert "is-error" not in listed
    for text in details.values():
        assert "tree-row is-error" not in text
        assert "code-error" not in text
    assert "send it?" in details["waits"]


def test_a_run_without_an_end_is_marked_after_a_day(page, workspace):
    # greptimedb#7875, langfuse#11550: spans of processes that were killed looked as if they ran.
    now = datetime.now(UTC)
    started = {"young": now - timedelta(hours=23), "old": now - timedelta(hours=25)}
    runs = {name: wire_run(name=name, start=start) for name, start in started.items()}
    ingest(workspace, *map(start_fields, runs.values()))
    base = project_url(workspace, UUID(runs["old"]["id"]))

    listed = page.get(f"{base}?range=7d")
    texts = {n: page.get(f"{base}/r/{run['id']}").content.decode() for n, run in runs.items()}
    old_only = page.get(base, {"range": "7d", "filter": 'eq(name, "old")'})

    statuses = {row.row.name: row.row.shown_status for row in listed.context["list"].rows}
    assert statuses == {"young": "pending", "old": "no_end"}
    assert "No end received" in listed.content.decode()
    assert "No end was received." in texts["old"]
    assert "Still running." in texts["young"]
    # A page that only has such runs does not poll for their ends.
    assert (listed.context["has_running"], old_only.context["has_running"]) == (True, False)


def test_the_strip_counts_running_runs_apart(page, workspace):
    base = project_url(workspace, stored_run(workspace))
    ingest(workspace, start_fields(wire_run()))

    [count, _] = page.get(f"{base}/strip").context["charts"]

    assert [(line.name, sum(line.values)) for line in count.lines] == [
        ("Success", 1), ("Error", 0), ("Running", 1),
    ]  # fmt: skip
    [listed] = page.get(base + count.lines[2].href).context["list"].rows
    assert listed.row.status.value == "pending"


def test_feedback_is_created_by_button_or_form_and_deleted(page, workspace):
    run_id = stored_run(workspace)
    address = f"{project_url(workspace, run_id)}/r/{run_id}"

    page.post(f"{address}/feedback", {"key": "helpful", "score": "1"})
    page.post(f"{address}/feedback", {"key": "tone", "comment": "Kind.", "correction": '{"a": 1}'})
    rejected = page.post(f"{address}/feedback", {"key": "empty"}, headers={"HX-Request": "true"})
    by_key = {feedback.key: feedback for feedback in Feedback.unscoped.all()}

    assert by_key.keys() == {"helpful", "tone"}
    assert (by_key["helpful"].score, by_key["helpful"].source_type) == (1.0, "app")
    assert (by_key["tone"].comment, by_key["tone"].correction) == ("Kind.", {"a": 1})
    assert rejected.status_code == 422
    page.post(f"{address}/feedback/{by_key['tone'].pk}/delete")
    assert [feedback.key for feedback in Feedback.unscoped.all()] == ["helpful"]


def test_feedback_names_the_person_who_gave_it(workspace):
    run_id = stored_run(workspace)
    address = f"{project_url(workspace, run_id)}/r/{run_id}"
    editor, viewer = (create_workspace_user(workspace, role) for role in ("editor", "viewer"))
    User.objects.filter(pk=editor.pk).update(name="Ada Lovelace")

    def sources(response):
        found = re.findall(
            r'<span class="feedback-source">(.*?)<relative-time', response.text, re.DOTALL
        )
        return [source.strip() for source in found]

    swapped = signed_in(editor).post(
        f"{address}/feedback", {"key": "helpful", "score": "1"}, headers=FRAGMENT
    )
    read = signed_in(viewer).get(address, headers=FRAGMENT)
    Feedback.unscoped.update(user_id=None, source_type="model")

    assert sources(swapped) == sources(read) == ["Ada Lovelace"]
    assert sources(signed_in(viewer).get(address, headers=FRAGMENT)) == ["model"]


def test_a_shared_trace_is_public_until_sharing_stops(page, workspace):
    root = wire_run(name="desk")
    leaf = wire_run(root, name="ask", run_type="llm", outputs={"text": "held"})
    ingest(workspace, root, leaf)
    base = project_url(workspace, root["id"])

    page.post(f"{base}/r/{root['id']}/share")
    address = f"/public/{Share.unscoped.get().token}/r"
    anonymous = Client(headers={"Accept": "text/html"})
    opened = anonymous.get(address)
    inner = anonymous.get(f"{address}/{leaf['id']}", headers={"HX-Request": "true"})
    page.post(f"{base}/r/{root['id']}/share", {"action": "revoke"})

    assert opened.status_code == 200
    assert opened["X-Robots-Tag"] == "noindex, nofollow"
    content = opened.content.decode()
    assert "desk" in content
    assert str(workspace.pk) not in content
    assert str(read_run(workspace, root["id"]).row.project_id) not in content
    assert "held" in inner.content.decode()
    assert anonymous.get(address).status_code == 404
    assert anonymous.get(f"{address}/{leaf['id']}").status_code == 404


def test_a_public_link_opens_no_run_of_another_trace(page, workspace):
    shared, other = stored_run(workspace), stored_run(workspace)
    page.post(f"{project_url(workspace, shared)}/r/{shared}/share")
    token = Share.unscoped.get().token

    assert Client().get(f"/public/{token}/r/{other}").status_code == 404


def test_a_turn_of_a_thread_shows_only_its_new_messages(page, workspace):
    history = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "first"}]
    new_messages = [{"role": "user", "content": "two"}, {"role": "assistant", "content": "second"}]
    thread = {"extra": {"metadata": {"thread_id": "t/1"}}}
    start = datetime.now(UTC) - timedelta(minutes=5)
    first = stored_run(
        workspace,
        start=start,
        inputs={"messages": history[:1]},
        outputs={"messages": history},
        **thread,
    )
    stored_run(
        workspace,
        start=start + timedelta(minutes=1),
        inputs={"messages": [*history, new_messages[0]]},
        outputs={"messages": [*history, *new_messages]},
        **thread,
    )
    base = project_url(workspace, first)

    turns = page.get(f"{base}/thread", {"thread": "t/1", "view": "turns"}).context["thread"].turns
    listed = page.get(f"{base}/threads").context["list"]

    texts = [
        [part.text for message in (*turn.new_inputs, *turn.new_outputs) for part in message.parts]
        for turn in turns
    ]
    assert texts == [["one", "first"], ["two", "second"]]
    assert [
        (thread_row.row.thread_key, thread_row.row.metrics.runs) for thread_row in listed.threads
    ] == [("t/1", 2)]
    assert page.get(f"{base}/thread", {"thread": "none"}).status_code == 404


def test_listed_runs_and_a_trace_are_downloaded(page, workspace):
    run_id = stored_run(workspace, name="desk")
    base = project_url(workspace, run_id)
    stored_run(workspace, name="other")

    lines = page.get(f"{base}/download", {"filter": 'eq(name, "desk")'}).getvalue().splitlines()
    trace = page.get(f"{base}/r/{run_id}/download?whole=1").getvalue().splitlines()

    assert [json.loads(line)["id"] for line in lines] == [str(run_id)]
    assert [json.loads(line)["outputs"] for line in trace] == [{"answer": "because"}]


def test_two_runs_are_compared_side_by_side(page, workspace):
    first, second = stored_run(workspace, name="desk"), stored_run(workspace, name="triage")
    base = project_url(workspace, first)

    chosen = page.post(f"{base}/selected", {"run": [first, second], "action": "compare"})
    both = page.get(chosen["Location"])
    alone = page.get(f"{base}/compare?a={first}")

    comparison = both.context["comparison"]
    assert [comparison.first.row.id, comparison.second.row.id] == [first, second]
    assert [row.id for row in alone.context["candidates"]] == [second]
    assert page.get(f"{base}/compare?a=nonsense").status_code == 404


def test_a_project_is_renamed_and_deleted_after_its_name_is_typed(page, workspace):
    base = project_url(workspace, stored_run(workspace, session_name="planner"))
    stored_run(workspace, session_name="taken")
    fields = {"description": "Plans.", "trace_tier": "shortlived"}

    conflict = page.post(f"{base}/settings", {"name": "taken"} | fields)
    page.post(f"{base}/settings", {"name": "plans"} | fields)
    page.post(f"{base}/delete", {"name": "planner"})
    project = Project.unscoped.get(pk=base.rpartition("/")[2])

    assert conflict.status_code == 422
    assert (project.name, project.trace_tier, project.deleted_at) == ("plans", "shortlived", None)
    page.post(f"{base}/delete", {"name": "plans"})
    assert page.get(base).status_code == 404


def test_several_projects_are_deleted_after_their_number_is_typed(page, workspace):
    for name in ("a", "b", "c"):
        stored_run(workspace, session_name=name)
    ids = {p.name: p.pk for p in Project.unscoped.all()}
    address = f"/o/{workspace.pk}/projects/delete"
    selection = {"project": [ids["a"], ids["b"]]}

    assert page.post(address, selection).status_code == 200
    assert page.post(address, selection | {"confirmation": "3 projects"}).status_code == 422
    page.post(address, selection | {"confirmation": "2 projects"})

    rows = page.get(f"/o/{workspace.pk}/projects").context["rows"]
    assert [row.project.name for row in rows] == ["c"]


def test_all_figures_of_a_listed_project_have_the_same_period(page, workspace):
    old = datetime.now(UTC) - timedelta(days=STATS_DAYS + 2)
    stored_run(workspace, start=old)
    stored_run(workspace)

    response = page.get(f"/o/{workspace.pk}/projects")

    [row] = response.context["rows"]
    assert (row.stats["trace_count"], row.stats["run_count"]) == (1, 1)
    assert row.counts.trace_count == 2
    cells = re.findall(r'<td class="num"\s+data-narrow="hide">([^<]*)</td>', response.text)
    assert cells[:2] == ["1", "1"]
    assert f"Figures of the last {STATS_DAYS} days." in response.text


def test_the_run_list_sorts_by_its_columns_and_pages_in_that_order(page, workspace):
    now = datetime.now(UTC)
    for number in range(RUNS_PER_PAGE + 2):
        start = now - timedelta(minutes=number)
        end = start + timedelta(seconds=number * 17 % 61)
        ids = [stored_run(workspace, start=start, end_time=end.isoformat(), name=f"n{number}")]
    base = project_url(workspace, ids[0])

    first = page.get(base, {"sort": "-latency"})
    after = first.context["list"].next_cursor
    second = page.get(base, {"sort": "-latency", "after": after})

    listed = [*first.context["list"].rows, *second.context["list"].rows]
    latencies = [item.row.latency for item in listed]
    assert len(listed) == RUNS_PER_PAGE + 2
    assert latencies == sorted(latencies, reverse=True)
    headers = {header.column.key: header for header in first.context["column_headers"]}
    assert headers["latency"].direction == "descending"
    assert headers["latency"].url == "?sort=latency"
    assert headers["start"].url == "?"
    assert headers["name"].url == "?sort=name"
    assert headers["input"].url == ""
    assert "data-live" not in first.text.partition("<run-table")[2].partition(">")[0]
    assert page.get(base, {"sort": "name", "after": after}).status_code == 400
    assert page.get(base, {"sort": "inputs"}).status_code == 200


def test_cells_of_the_run_list_escape_stored_text(page, workspace):
    unsafe_text = "<b>&amp;"
    run_id = stored_run(
        workspace,
        name=unsafe_text,
        inputs={"question": unsafe_text},
        tags=[unsafe_text],
        error=unsafe_text,
        extra={"metadata": {"thread_id": unsafe_text, "k": unsafe_text}},
    )
    base = project_url(workspace, run_id)
    keys = [*STANDARD_COLUMNS, "metadata.k"]

    response = page.get(base, {"columns": json.dumps(keys)})

    assert "<b>" not in response.text
    row = response.text.partition(f'id="run-{run_id}"')[2].partition("</tr>")[0]
    assert row.count("<td") == len(keys) + 2
    assert row.count("&lt;b&gt;&amp;amp;") >= 6


def test_the_ingest_log_counts_received_and_stored_runs(page, workspace):
    stored_run(workspace, session_name="planner")

    row = page.get(f"/o/{workspace.pk}/settings/ingest-log").context["rows"][0]

    assert (row.project_name, row.stored, row.received, row.refused) == ("planner", 1, 1, 0)


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00", "9999-12-31T23:59:59.999999"])
def test_the_ingest_log_ignores_times_without_a_day_before_or_after_them(page, workspace, time):
    address = f"/o/{workspace.pk}/settings/ingest-log"

    assert page.get(address, {"to": time}).status_code == 200


def test_a_price_is_added_changed_and_deleted(workspace):
    admin = signed_in(create_workspace_user(workspace, "admin"))
    address = f"/o/{workspace.pk}/settings/prices"
    fields = {
        "name": "ours",
        "match_pattern": "^ours",
        "prompt_cost": "2.5",
        "completion_cost": "10",
    }

    invalid = admin.post(address, fields | {"match_pattern": "(("})
    admin.post(address, fields)
    price = ModelPrice.unscoped.get()
    admin.post(f"{address}?price={price.pk}", fields | {"prompt_cost": "3"})
    price.refresh_from_db()

    assert invalid.status_code == 422
    assert price.prompt_cost * 1_000_000 == 3
    admin.post(f"{address}/{price.pk}/delete")
    assert not ModelPrice.unscoped.exists()


def test_prices_of_the_workspace_are_listed_before_those_by_provider(page, workspace):
    for name in ("zeta", "alpha"):
        ModelPrice(
            workspace=workspace,
            name=name,
            match_pattern=name,
            prompt_cost=1,
            completion_cost=1,
        ).save()

    response = page.get(f"/o/{workspace.pk}/settings/prices")

    own, others = response.context["entries"][:2], response.context["entries"][2:]
    assert [(price.name, is_own) for price, is_own in own] == [("alpha", True), ("zeta", True)]
    listed = [(price.provider or "~", price.name.lower()) for price, _ in others]
    assert listed == sorted(listed)
    assert len(listed) == PRICES_PER_PAGE - 2


@pytest.mark.parametrize(
    "path", ["", "/facets", "/strip", "/monitoring", "/threads", "/r/{run}", "/settings"]
)
def test_the_number_of_queries_of_a_page_does_not_grow_with_the_runs(page, workspace, path):
    run_id = stored_run(workspace, extra={"metadata": {"thread_id": "t-1"}})
    url = project_url(workspace, run_id) + path.format(run=run_id)

    def count_queries():
        page.get(url)
        with CaptureQueriesContext(connection) as captured:
            assert page.get(url).status_code == 200
        return len(captured)

    with_one = count_queries()
    for number in range(5):
        stored_run(workspace, extra={"metadata": {"thread_id": f"t-{number}"}})

    assert count_queries() == with_one


def test_a_measure_without_values_has_no_quantile(page, workspace):
    run_id = stored_run(workspace, run_type="llm")
    project_id = read_run(workspace, run_id).row.project_id

    query = RunQuery(project_ids=[project_id])
    metrics = run_store.aggregate(workspace.pk, MetricsQuery(query=query)).overall

    assert metrics.quantile(Measure.FIRST_TOKEN, 0.5) is None
    assert metrics.quantile(Measure.LATENCY, 0.5) == 1


def test_tabs_of_a_project_keep_the_time_range(page, workspace):
    base = project_url(workspace, stored_run(workspace))

    tabs = {
        path: set(
            re.findall(
                r'href="([^"]+)"',
                page.get(f"{base}{path}", {"range": "1d"})
                .text.partition('<nav class="tabs"')[2]
                .partition("</nav>")[0]
                .replace("&amp;", "&"),
            )
        )
        for path in ("", "/threads", "/monitoring")
    }

    assert len(tabs["/monitoring"]) == len(tabs["/threads"]) == len(tabs[""]) == 8
    assert tabs["/monitoring"] == {
        *(f"{base}{path}?range=1d" for path in ("", "/threads", "/monitoring")),
        *(f"{base}?show={show}&range=1d" for show in ("all", "llm")),
        *(f"{base}/{page}" for page in ("alerts", "evaluators", "settings")),
    }


@pytest.mark.parametrize(
    ("cost", "cell"),
    [
        (0.00009, '<span title="$0.000090">&lt;$0.0001</span>'),
        (0.0001, "$0.00010"),
        (0, "$0"),
    ],
)
def test_costs_too_small_for_the_column_are_shown_on_hover(page, workspace, cost, cell):
    usage = {"usage_metadata": {"input_tokens": 1, "output_tokens": 1, "total_cost": cost}}
    run_id = stored_run(workspace, run_type="llm", outputs=usage)

    text = page.get(project_url(workspace, run_id), {"show": "llm"}).text

    assert re.search(rf'col-cost"[^>]*>{re.escape(cell)}</td>', text)


def test_columns_without_values_are_marked_in_the_default_selection(page, workspace):
    base = project_url(workspace, stored_run(workspace))

    text = page.get(base).text

    assert "data-hides-blank" in text
    assert text.count("is-blank") >= 3
    chosen = page.get(base, {"columns": '["name","tokens"]'}).text
    assert "data-hides-blank" not in chosen
