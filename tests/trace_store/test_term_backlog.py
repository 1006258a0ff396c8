"""Runs whose terms an earlier version wrote are indexed again in the background."""

from __future__ import annotations

from importlib import import_module

import pytest
from django.db import connection

from apps.trace_store import run_store
from apps.trace_store.filters import terms
from apps.trace_store.postgres.postprocess import term_backlog
from apps.trace_store.postgres.postprocess.term_index import salt_terms
from tests.factories.organizations import WorkspaceFactory
from tests.factories.tracing import stored_run
from tests.trace_store.test_postprocess import read_terms

pytestmark = pytest.mark.django_db
MIGRATION = import_module("apps.trace_store.migrations.0005_term_backlog")


def migrate_again():
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE trace_store_term_backlog")
        cursor.execute(MIGRATION.TERM_BACKLOG)


def has_prefix(owner, run_id):
    prefix = terms.hash_term(terms.TermKind.WORD_PREFIX, "refu")
    return set(salt_terms(owner.pk, [prefix])) <= read_terms(owner, run_id)[0]


def count_projects():
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM trace_store_term_backlog")
        return cursor.fetchone()[0]


def test_runs_of_an_earlier_version_are_indexed_again(workspace, monkeypatch):
    other = WorkspaceFactory()
    monkeypatch.setattr(terms, "PREFIX_LENGTHS", ())
    runs = [(workspace, stored_run(workspace, name=f"refunds {n}")) for n in range(5)]
    runs.append((other, stored_run(other, name="refunds")))
    run_store.process_pending()
    assert not any(has_prefix(owner, run_id) for owner, run_id in runs)
    monkeypatch.undo()
    monkeypatch.setattr(term_backlog, "_BATCH_RUNS", 2)
    migrate_again()

    indexed = run_store.index_term_backlog(seconds=60)

    assert indexed == len(runs)
    assert all(has_prefix(owner, run_id) for owner, run_id in runs)
    assert count_projects() == 0


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
