"""What PostgreSQL answers is what the reference evaluator says, filter by filter."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.trace_store import RunQuery, run_store
from apps.trace_store.filters import parse
from apps.trace_store.filters.reference import matches
from apps.trace_store.filters.terms import extract_terms
from apps.trace_store.postgres.filtering import compile_where
from apps.trace_store.postgres.filtering.subjects import load_subjects
from apps.trace_store.postgres.postprocess import processor
from tests.tracing.filters.population import filters, populate


def from_store(workspace, query):
    """The ids of all pages."""
    found, cursor = [], None
    while True:
        page = run_store.query(workspace.pk, query, limit=7, cursor=cursor)
        found += [run.row.id for run in page.runs]
        if page.next_cursor is None:
            return found
        cursor = page.next_cursor


def everything(workspace, run_ids):
    rows = [run.row for run in run_store.query(workspace.pk, RunQuery(), limit=1000).runs]
    assert len(rows) == len(run_ids)
    return load_subjects(workspace.pk, rows)


def check(workspace, run_ids, cases):
    subjects = everything(workspace, run_ids)
    roots = {(one.run.project_id, one.run.id): one for one in subjects if one.run.is_root}
    terms = {one.run.id: set(extract_terms(one)) for one in subjects}

    @settings(
        max_examples=cases,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=False,
    )
    @given(filters(run_ids), st.sampled_from(["where", "where", "where_root", "where_any"]))
    def agrees(text, scope):
        expression = parse(text)
        hits = {one.run.id for one in subjects if matches(expression, one)}
        expected = [one.run.id for one in subjects if one.run.id in hits]
        if scope == "where_root":
            expected = [
                one.run.id
                for one in subjects
                if (root := roots.get((one.run.project_id, one.run.trace_id))) is not None
                and root.run.id in hits
            ]
        if scope == "where_any":
            traces = {
                (one.run.project_id, one.run.trace_id) for one in subjects if one.run.id in hits
            }
            expected = [
                one.run.id for one in subjects if (one.run.project_id, one.run.trace_id) in traces
            ]

        assert from_store(workspace, replace(RunQuery(), **{scope: expression})) == expected, (
            scope,
            text,
        )
        # And what the index would be asked for leaves none of them out.
        for clause in compile_where(workspace.pk, expression).terms or ():
            assert all(terms[run_id] & clause for run_id in hits)

    agrees()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_store_selects_what_the_reference_matches(workspace, seed):
    run_ids = populate(workspace, seed)
    processor.process_all()
    run_ids += populate(workspace, seed + 50, runs=6)

    check(workspace, run_ids, 120)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
def test_the_store_selects_what_the_reference_matches_thousands_of_times(workspace, seed):
    run_ids = populate(workspace, seed, runs=30)
    processor.process_all()
    run_ids += populate(workspace, seed + 50, runs=10)

    check(workspace, run_ids, 400)
