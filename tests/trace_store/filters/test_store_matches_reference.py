"""PostgreSQL selects the same runs as the reference evaluator, for random filters."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.trace_store import RunQuery, run_store
from apps.trace_store.filters import parse
from apps.trace_store.filters.reference import matches
from apps.trace_store.filters.terms import ANYTHING, extract_terms
from apps.trace_store.postgres.filtering import compile_where
from apps.trace_store.postgres.filtering.subjects import load_subjects
from apps.trace_store.postgres.filtering.terms import required_labels
from apps.trace_store.postgres.postprocess import processor
from tests.examples import fuzz_settings
from tests.trace_store.filters.population import filters, populate

pytestmark = pytest.mark.exhaustive


def query_ids(workspace, query):
    """Return the ids of the runs of all pages."""
    run_ids, cursor = [], None
    while True:
        page = run_store.query(workspace.pk, query, limit=7, cursor=cursor)
        run_ids += [run.row.id for run in page.runs]
        if page.next_cursor is None:
            return run_ids
        cursor = page.next_cursor


def load_all_subjects(workspace, run_ids):
    rows = [run.row for run in run_store.query(workspace.pk, RunQuery(), limit=1000).runs]
    assert len(rows) == len(run_ids)
    return load_subjects(workspace.pk, rows)


def has_one(terms, clause):
    """Whether the run has one of the clause's terms."""
    return ANYTHING in terms.hashes or any(
        term in terms.hashes
        if isinstance(term, int)
        else any(
            word[0] in term.marks
            and (word[1:].startswith(term.text) if term.is_prefix else word[1:] == term.text)
            for word in terms.words
        )
        for term in clause
    )


def check_random_filters(workspace, run_ids, cases):
    subjects = load_all_subjects(workspace, run_ids)
    roots = {
        (subject.run.project_id, subject.run.id): subject
        for subject in subjects
        if subject.run.is_root
    }
    terms = {subject.run.id: extract_terms(subject) for subject in subjects}

    @fuzz_settings(cases)
    @given(filters(run_ids), st.sampled_from(["where", "where", "where_root", "where_any"]))
    def check_filter(text, scope):
        expression = parse(text)
        hits = {subject.run.id for subject in subjects if matches(expression, subject)}
        expected = [subject.run.id for subject in subjects if subject.run.id in hits]
        if scope == "where_root":
            expected = [
                subject.run.id
                for subject in subjects
                if (root := roots.get((subject.run.project_id, subject.run.trace_id))) is not None
                and root.run.id in hits
            ]
        if scope == "where_any":
            traces = {
                (subject.run.project_id, subject.run.trace_id)
                for subject in subjects
                if subject.run.id in hits
            }
            expected = [
                subject.run.id
                for subject in subjects
                if (subject.run.project_id, subject.run.trace_id) in traces
            ]

        assert query_ids(workspace, replace(RunQuery(), **{scope: expression})) == expected, (
            scope,
            text,
        )
        # The terms that the index is searched for exclude no match.
        for clause in compile_where(workspace.pk, expression).terms or ():
            assert all(has_one(terms[run_id], clause) for run_id in hits)
        for group in required_labels(expression):
            assert all(group & {*terms[run_id].words} for run_id in hits)

    check_filter()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_store_selects_the_runs_that_the_reference_matches(workspace, seed):
    run_ids = populate(workspace, seed)
    processor.process_all()
    run_ids += populate(workspace, seed + 50, runs=6)

    check_random_filters(workspace, run_ids, 40)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
def test_thousands_of_filters_select_the_runs_that_the_reference_matches(workspace, seed):
    run_ids = populate(workspace, seed, runs=30)
    processor.process_all()
    run_ids += populate(workspace, seed + 50, runs=10)

    check_random_filters(workspace, run_ids, 400)
