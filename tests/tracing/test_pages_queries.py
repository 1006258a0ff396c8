"""Queries as a user types them on the page of a project, against the API's filters."""

from __future__ import annotations

from types import SimpleNamespace
from uuid import UUID

import pytest

from apps.tracing.pages import query_clauses
from apps.tracing.services import ensure_project
from tests.trace_store.filters.test_query_text import FAULTS, NOW, QUERIES, stored

__all__ = ["stored"]

pytestmark = pytest.mark.django_db


@pytest.fixture
def list_url(stored, monkeypatch):
    """The address of the list of all runs of the project, at the time of the queries."""
    monkeypatch.setattr(query_clauses, "timezone", SimpleNamespace(localtime=lambda: NOW))
    return f"/o/{stored.pk}/projects/p/{ensure_project(stored.pk, 'default').pk}"


def listed_ids(page, address, query):
    """Return the ids of the runs that the table shows for the query, and the response."""
    response = page.get(
        address, {"show": "all", "range": "all", "query": query}, headers={"HX-Request": "true"}
    )
    assert response.status_code == 200, query
    return {run.row.id for run in response.context["list"].rows}, response


def test_the_page_lists_the_runs_of_the_same_filter_of_the_api(page, api, stored, list_url):
    session = [str(ensure_project(stored.pk, "default").pk)]
    differing = []
    for query, where in QUERIES:
        shown, response = listed_ids(page, list_url, query)
        body = {"session": session, "filter": where, "select": ["id"]}
        answer = api.post("/api/v1/runs/query", body).json()
        assert shown, query
        if shown != {UUID(run["id"]) for run in answer["runs"]} or response.context["list"].problem:
            differing.append(query)

    print(f"{len(QUERIES) - len(differing)} of {len(QUERIES)} queries list the runs of the API")  # noqa: T201
    assert len(QUERIES) >= 40
    assert differing == []


def test_a_fault_never_empties_the_page(page, stored, list_url):
    everything, _ = listed_ids(page, list_url, "")
    emptied = []
    for query, fault, *_ in FAULTS:
        shown, response = listed_ids(page, list_url, query)
        problem = response.context["list"].problem
        if shown != everything or problem is None or problem.fault != fault:
            emptied.append(query)

    print(f"{len(FAULTS) - len(emptied)} of {len(FAULTS)} faults keep the list and are named")  # noqa: T201
    assert len(everything) == 4
    assert emptied == []
