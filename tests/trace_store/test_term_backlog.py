"""Runs whose terms an earlier version wrote are indexed again in the background."""

from __future__ import annotations

from importlib import import_module

import pytest
from django.db import connection

from apps.trace_store import RunQuery, run_store
from apps.trace_store.filters import parse, terms
from apps.trace_store.postgres.postprocess import term_backlog
from apps.trace_store.postgres.postprocess.term_index import salt_terms
from tests.factories.organizations import WorkspaceFactory
from tests.factories.tracing import stored_run

pytestmark = pytest.mark.django_db
MIGRATION = import_module("apps.trace_store.migrations.0008_run_words")


def index_as_earlier():
    """Leave the terms as the earlier version wrote them, and migrate."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT workspace_id, id, tsvector_to_array(words) FROM trace_store_run_terms"
        )
        for workspace_id, run_id, words in cursor.fetchall():
            texts = {word[2:] for word in words if not word.startswith("/", 2)}
            beginnings = {
                text[:length] for text in texts for length in (4, 7) if len(text) > length
            }
            hashes = {terms.hash_term(terms.TermKind.WORD, text) for text in texts}
            hashes |= {terms.hash_term(terms.TermKind.WORD_PREFIX, text) for text in beginnings}
            cursor.execute(
                "UPDATE trace_store_run_terms SET words = NULL, terms = terms || %s WHERE id = %s",
                [salt_terms(workspace_id, hashes), run_id],
            )
    migrate_again()


def migrate_again():
    with connection.cursor() as cursor:
        cursor.execute(MIGRATION.BACKLOG)


def count_indexed():
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(words) FROM trace_store_run_terms")
        return cursor.fetchone()[0]


def count_projects():
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM trace_store_term_backlog")
        return cursor.fetchone()[0]


def search(workspace, text):
    page = run_store.query(workspace.pk, RunQuery(where=parse(f"search('{text}')")), limit=10)
    return {run.row.name for run in page.runs}


SEARCHES = {
    "refunds": {"refunds 0", "refunds 1", "refunds 2", "refunds 3", "refunds 4"},
    "refun*": {"refunds 0", "refunds 1", "refunds 2", "refunds 3", "refunds 4"},
    "refunds* 3": {"refunds 3"},
    "ref* 4": {"refunds 4"},
    "refunded*": set(),
    "refused": set(),
}


def test_runs_of_an_earlier_version_are_found_and_indexed_again(workspace, monkeypatch):
    other = WorkspaceFactory()
    for n in range(5):
        stored_run(workspace, name=f"refunds {n}")
    stored_run(other, name="refunds")
    run_store.process_pending()
    index_as_earlier()
    stored_run(workspace, name="refunds 5")
    run_store.process_pending()
    monkeypatch.setattr(term_backlog, "_BATCH_RUNS", 2)

    for batches in range(4):
        found = {text: search(workspace, text) - {"refunds 5"} for text in SEARCHES}
        assert (batches, found) == (batches, SEARCHES)
        assert "refunds 5" in search(workspace, "refu*")
        term_backlog._index_batch()
    run_store.index_term_backlog(seconds=60)

    assert {text: search(workspace, text) - {"refunds 5"} for text in SEARCHES} == SEARCHES
    assert search(other, "refund*") == {"refunds"}
    assert (count_indexed(), count_projects()) == (7, 0)


def test_the_backlog_continues_where_it_stopped(workspace, monkeypatch):
    for n in range(3):
        stored_run(workspace, name=f"refunds {n}")
    run_store.process_pending()
    migrate_again()
    monkeypatch.setattr(term_backlog, "_BATCH_RUNS", 2)

    assert run_store.index_term_backlog(seconds=0) == 0
    assert [term_backlog._index_batch() for _ in range(4)] == [2, 1, 0, None]


def test_a_new_installation_has_no_backlog(workspace):
    migrate_again()

    assert count_projects() == 0
    assert run_store.index_term_backlog(seconds=60) == 0
