"""A search reads the content only of runs that have its words, in the field that it names."""

from __future__ import annotations

import pytest

from apps.trace_store import RunQuery, run_store
from apps.trace_store.filters import parse
from apps.trace_store.filters.terms import MAX_WORD_LENGTH
from apps.trace_store.postgres.reading.post_filter import PostFilter
from tests.factories.organizations import WorkspaceFactory
from tests.factories.tracing import ingest, stored_run, wire_run

pytestmark = pytest.mark.django_db
LONG = "x" * MAX_WORD_LENGTH


@pytest.fixture
def candidates(monkeypatch):
    """The names of the runs whose content was evaluated."""
    names = []
    filter_runs = PostFilter.filter_runs

    def spy(self, rows):
        names.extend(row.name for row, _ in rows)
        return filter_runs(self, rows)

    monkeypatch.setattr(PostFilter, "filter_runs", spy)
    return names


@pytest.fixture
def runs(workspace):
    root = wire_run(name="root", inputs={"q": "refused"}, outputs={"a": "reference"})
    child = wire_run(
        parent=root,
        name="child",
        run_type="tool",
        inputs={"q": "refunds customer0001 Kundenkäufe"},
        outputs={"a": f"refusal {LONG}a"},
        error="refresh failed",
    )
    ingest(workspace, root, child)
    stored_run(WorkspaceFactory(), name="other", inputs={"q": "refunds"})
    run_store.process_pending()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("search('refu*')", ["child", "root"]),
        ("search('refund*')", ["child"]),
        ("search('refunded*')", []),
        ("search('refund')", []),
        ("search('re*')", ["child", "root"]),
        ("search('customer0001*')", ["child"]),
        ("search('customer0002*')", []),
        ("search('kundenkä*')", ["child"]),
        ("search('kundenke*')", []),
        ("search('refund* refused')", []),
        ("search('refund* refusal refresh*')", ["child"]),
        ("search(inputs, 'refund*')", ["child"]),
        ("search(outputs, 'refund*')", []),
        ("search(outputs, 'refu*')", ["child"]),
        ("search(error, 'refu*')", []),
        ("search(error, 'refr*')", ["child"]),
        ("search(name, 'refu*')", []),
        ("search(name, 'chi*')", ["child"]),
        ("and(search('refu*'), eq(status, 'error'))", ["child"]),
        ("and(search('refu*'), eq(run_type, 'llm'))", []),
        ("and(search('refu*'), eq(is_root, true))", ["root"]),
        ("or(search('refund*'), search('reference'))", ["child", "root"]),
        # Longer words are candidates by their beginnings, which the filter then compares.
        (f"search('{LONG}b')", ["child"]),
        (f"search('{LONG}*')", ["child"]),
        (f"search('{LONG[1:]}y*')", []),
    ],
)
@pytest.mark.usefixtures("runs")
def test_only_runs_with_the_words_are_read(workspace, candidates, text, expected):
    page = run_store.query(workspace.pk, RunQuery(where=parse(text)), limit=10)

    assert sorted(candidates) == expected
    found = [] if text == f"search('{LONG}b')" else expected
    assert sorted(run.row.name for run in page.runs) == found


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"is_root": True}, ["root"]),
        ({"run_type": "tool"}, ["child"]),
        ({"has_error": True}, ["child"]),
        ({"run_type": "llm"}, []),
    ],
)
@pytest.mark.usefixtures("runs")
def test_only_runs_with_the_words_that_the_query_selects_are_read(
    workspace, candidates, query, expected
):
    query = RunQuery(where=parse("search('refu*')"), **query)

    page = run_store.query(workspace.pk, query, limit=10)

    assert sorted(candidates) == expected
    assert [run.row.name for run in page.runs] == expected
