"""The query bar's language: queries as a user types them, their faults, and their translation."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.feedback.models import Feedback
from apps.trace_store import RunQuery, run_store
from apps.trace_store.errors import FilterError
from apps.trace_store.filters import parse, query_fields
from apps.trace_store.filters.formatting import format_filter, format_query, translate
from apps.trace_store.filters.query_text import MAX_QUERY_DEPTH, MAX_QUERY_LENGTH, parse_query
from tests.examples import fuzz_settings
from tests.factories.tracing import ingest, wire_run
from tests.trace_store.filters.population import filters

NOW = datetime(2026, 3, 4, 15, 30, tzinfo=UTC)
DAY = datetime(2026, 3, 3, 9, tzinfo=UTC)

QUERIES = [
    # words
    ("refund", 'search("refund*")'),
    ("refund card", 'search("refund* card*")'),
    ('"card expired"', 'search("card expired")'),
    ("refund OR lamp", 'or(search("refund*"), search("lamp*"))'),
    ("-refund", 'not(search("refund*"))'),
    ("NOT refund lamp", 'and(not(search("refund*")), search("lamp*"))'),
    # fields and values
    ("status:error", 'eq(status, "error")'),
    ("status:ERROR", 'eq(status, "error")'),
    ("status: error", 'eq(status, "error")'),
    ("status:(error OR interrupted)", 'in(status, ["error", "interrupted"])'),
    ("-status:error", 'not(eq(status, "error"))'),
    ("status:!=error", 'not(eq(status, "error"))'),
    ("status:running", 'eq(status, "pending")'),
    ("type:tool", 'eq(run_type, "tool")'),
    ("name:desk", 'eq(name, "desk")'),
    ('name:"retrieve docs"', 'eq(name, "retrieve docs")'),
    ("name:des*", 'ilike(name, "des%")'),
    ("name:*es*", 'ilike(name, "%es%")'),
    ("name:~docs", 'search(name, "docs")'),
    ("tag:(billing OR urgent)", 'in(tags, ["billing", "urgent"])'),
    ("tag:(billing urgent)", 'and(has(tags, "billing"), has(tags, "urgent"))'),
    ("tag:*", "is_not_null(tags)"),
    ("error:*", "is_not_null(error)"),
    ("error:expired", 'search(error, "expired*")'),
    ("input:refund", 'search(inputs, "refund*")'),
    ("output:\"it's fine\"", 'search(outputs, "it s fine")'),
    # units and ranges
    ("latency:>2s", "gt(latency, 2)"),
    ("latency:>=500ms", "gte(latency, 0.5)"),
    ("latency:> 2s", "gt(latency, 2)"),
    ("latency:>2sec", "gt(latency, 2)"),
    ("latency:1s..5s", "and(gte(latency, 1), lte(latency, 5))"),
    ("latency:[1 TO 5]", "and(gte(latency, 1), lte(latency, 5))"),
    ("tokens:>4k", "gt(total_tokens, 4000)"),
    ("tokens:>1,000", "gt(total_tokens, 1000)"),
    ("tokens.in:>=2k", "gte(prompt_tokens, 2000)"),
    ("cost:>$0.01", "gt(total_cost, 0.01)"),
    ("cost:0.01..", "gte(total_cost, 0.01)"),
    ("start:>2h", 'gt(start_time, "2026-03-04T13:30:00Z")'),
    (
        "start:yesterday",
        'and(gte(start_time, "2026-03-03T00:00:00Z"), lt(start_time, "2026-03-04T00:00:00Z"))',
    ),
    ("start:>2026-03-03", 'gte(start_time, "2026-03-04T00:00:00Z")'),
    # keys
    (
        "env:production",
        'and(in(metadata_key, ["env", "environment"]), eq(metadata_value, "production"))',
    ),
    ("-env:dev", 'not(and(in(metadata_key, ["env", "environment"]), eq(metadata_value, "dev")))'),
    ("user:u-7", 'and(in(metadata_key, ["user_id", "user"]), eq(metadata_value, "u-7"))'),
    ("metadata.plan:gold", 'and(eq(metadata_key, "plan"), eq(metadata_value, "gold"))'),
    ("metadata.plan:*", 'eq(metadata_key, "plan")'),
    ("metadata.seats:>3", 'and(eq(metadata_key, "seats"), gt(metadata_value, 3))'),
    ('metadata."a b":x', 'and(eq(metadata_key, "a b"), eq(metadata_value, "x"))'),
    ("input.order.id:A-1", 'and(eq(input_key, "order.id"), eq(input_value, "A-1"))'),
    ("feedback.helpful:>0.5", 'and(eq(feedback_key, "helpful"), gt(feedback_score, 0.5))'),
    ("feedback.helpful:true", 'and(eq(feedback_key, "helpful"), eq(feedback_score, 1))'),
    ("feedback.tone:kind", 'and(eq(feedback_key, "tone"), eq(feedback_value, "kind"))'),
    (
        "feedback.tone.comment:*well*",
        'and(eq(feedback_key, "tone"), ilike(feedback_comment, "%well%"))',
    ),
    ("feedback:helpful", 'eq(feedback_key, "helpful")'),
    # together
    (
        'status:error latency:>2s -env:dev tag:(billing OR urgent) "card expired"',
        (
            'and(eq(status, "error"), gt(latency, 2), not(and(in(metadata_key,'
            ' ["env", "environment"]), eq(metadata_value, "dev"))),'
            ' in(tags, ["billing", "urgent"]), search("card expired"))'
        ),
    ),
    (
        "(status:error OR latency:>2s) name:desk",
        'and(or(eq(status, "error"), gt(latency, 2)), eq(name, "desk"))',
    ),
    ("total_tokens:>5", "gt(total_tokens, 5)"),
]  # fmt: skip


FAULTS = [
    ("latancy:>2s", "latancy", "Unknown field `latancy`. Did you mean `latency`?", "latency"),
    ("name:x tags2:y", "tags2", "Unknown field `tags2`. Did you mean `tags`?", "tags"),
    ("plan:gold", "plan", "Unknown field `plan`. Metadata is `metadata.plan`.", ""),
    (
        "latency:soon",
        "soon",
        "`latency` takes a duration, such as `2s` or `500ms`.",
        "",
    ),
    ("tokens:>many", "many", "`tokens` takes a number, such as `400` or `4k`.", ""),
    ("cost:>cheap", "cheap", "`cost` takes an amount in US dollars, such as `$0.01`.", ""),
    (
        "start:>soon",
        "soon",
        "`start` takes a date, or how long ago, such as `2026-01-31` or `2h`.",
        "",
    ),
    (
        "status:failed",
        "failed",
        (
            "`status` is success, error, running, interrupted or cancelled, not `failed`."
            " Did you mean `error`?"
        ),
        "error",
    ),
    ("status:", "status:", "`status` needs a value, such as `status:error`.", ""),
    ("latency:>", "latency:>", "`latency` needs a value, such as `latency:>2s`.", ""),
    ('name:"x', '"x', "This quotation mark is not closed.", ""),
    ("(status:error", "(", "This parenthesis is not closed.", ""),
    ("status:error)", ")", "There is no opening parenthesis for this `)`.", ""),
    ("OR status:error", "OR", "`OR` stands between two conditions.", ""),
    ("status:error OR", "OR", "`OR` stands between two conditions.", ""),
    ("name:>5", "5", "`name` has no order. Write `name:5` or `name:5*`.", ""),
    ("?!", "?!", "A search needs at least one letter or digit.", ""),
    (
        "latency>2s",
        "latency>2s",
        "A colon is missing after `latency`. Write `latency:>2s`.",
        "latency:>2s",
    ),
    ("https://x.org/a", "https://x.org/a", "An address stands in quotes.", '"https://x.org/a"'),
    (
        "id:12",
        "12",
        "`id` takes a whole id, such as `0190a1b2-c3d4-7ef0-a5b6-6ea3a82e9328`.",
        "",
    ),
    ("name:f(x)", "f(", "Put text with parentheses in quotes.", ""),
    ("()", "()", "The parentheses are empty.", ""),
    ("status:error AND", "AN", "`AND` stands between two conditions.", ""),
]


@pytest.fixture
def stored(workspace):
    """Runs of which each query finds some and leaves out others."""
    desk = wire_run(
        name="desk",
        start=DAY,
        tags=["billing", "urgent"],
        error="Card expired",
        inputs={"text": "Refund the card", "order": {"id": "A-1"}},
        end_time=(DAY + timedelta(seconds=3)).isoformat(),
        extra={"metadata": {"env": "production", "plan": "gold", "seats": 5, "a b": "x"}},
    )
    search = wire_run(
        desk,
        start=DAY,
        name="retrieve docs",
        run_type="tool",
        tags=["billing"],
        outputs={"text": "it's fine"},
        end_time=(DAY + timedelta(milliseconds=600)).isoformat(),
    )
    lamp = wire_run(
        name="Lamp",
        start=NOW - timedelta(hours=1),
        inputs={"text": "a lamp"},
        outputs={
            "usage_metadata": {
                "input_tokens": 4_000,
                "output_tokens": 2_000,
                "total_tokens": 6_000,
                "total_cost": 0.02,
            }
        },
        run_type="llm",
        end_time=None,
        extra={"metadata": {"environment": "dev", "user_id": "u-7", "seats": "many"}},
    )
    waits = wire_run(
        name="waits", start=DAY, error="GraphInterrupt((Interrupt(value='send it?'),))"
    )
    ingest(workspace, desk, search, lamp, waits)
    for run, key, fields in (
        (desk, "helpful", {"score": 1.0}),
        (search, "helpful", {"score": 0.2}),
        (lamp, "tone", {"value": "kind", "comment": "Well done"}),
    ):
        Feedback(
            workspace=workspace, run_id=run["id"], key=key, source={"type": "api"}, **fields
        ).save()
    return workspace


def list_names(workspace, where):
    page = run_store.query(workspace.pk, RunQuery(where=where), limit=100)
    return sorted(run.row.name for run in page.runs)


def test_typed_queries_find_the_runs_of_the_same_filter_of_the_api(stored):
    found = {}
    for query, where in QUERIES:
        by_query = list_names(stored, parse_query(query, NOW).expression)
        assert by_query == list_names(stored, parse(where)), query
        found[query] = by_query

    # A comparison of two lists without runs would say nothing about most queries.
    empty = {query for query, names in found.items() if not names}
    assert empty == set()
    assert {query for query, names in found.items() if len(names) == 4} == set()


@pytest.mark.parametrize(("query", "where"), QUERIES)
def test_typed_queries_are_the_filter_of_the_api(query, where):
    assert parse_query(query, NOW).expression == parse(where)


@pytest.mark.parametrize(("query", "fault", "message", "meant"), FAULTS)
def test_a_fault_is_a_sentence_with_its_place(query, fault, message, meant):
    with pytest.raises(FilterError) as caught:
        parse_query(query, NOW)

    (error,) = caught.value.errors
    assert caught.value.detail == error["message"] == message
    assert query[error["start"] : error["end"]] == fault
    assert error["suggestion"] == meant
    assert error["column"] == error["start"] + 1


def test_limits_are_faults():
    for query in (
        "x" * (MAX_QUERY_LENGTH + 1),
        "(" * MAX_QUERY_DEPTH + "x" + ")" * MAX_QUERY_DEPTH,
        "-" * 200 + "x",
        "a " * 201,
    ):
        with pytest.raises(FilterError):
            parse_query(query)


def test_clauses_are_the_parts_between_spaces():
    query = 'status:error  -tag:(a OR b) "card expired" (x OR y)'

    clauses = parse_query(query).clauses

    assert [query[clause.start : clause.end] for clause in clauses] == [
        "status:error", "-tag:(a OR b)", '"card expired"', "(x OR y)",
    ]  # fmt: skip
    alternatives = parse_query("a OR b")
    assert alternatives.is_alternative
    assert [(clause.start, clause.end) for clause in alternatives.clauses] == [(0, 6)]


def test_dates_are_days_of_the_zone_of_now():
    now = datetime(2026, 3, 29, 12, tzinfo=ZoneInfo("Europe/Berlin"))

    def bounds(query):
        return format_filter(parse_query(query, now).expression)

    # The clocks change on this day, which has 23 hours.
    assert bounds("start:today") == (
        'and(gte(start_time, "2026-03-28T23:00:00+00:00"),'
        ' lt(start_time, "2026-03-29T22:00:00+00:00"))'
    )
    assert bounds("start:2026-12") == (
        'and(gte(start_time, "2026-11-30T23:00:00+00:00"),'
        ' lt(start_time, "2026-12-31T23:00:00+00:00"))'
    )
    assert bounds("start:<2d") == 'lt(start_time, "2026-03-27T10:00:00+00:00")'


@pytest.mark.parametrize(("query", "where"), QUERIES)
def test_a_filter_is_written_in_both_languages(query, where):
    expression = parse(where)

    text = format_query(expression)

    assert text is not None
    assert parse(format_filter(parse_query(text, NOW).expression)) == expression
    assert parse(format_filter(expression)) == expression


def test_a_search_of_a_name_is_no_whole_name():
    expression = parse('search(name, "ask doc*")')

    assert format_query(expression) == "(name:~ask name:~doc*)"
    assert parse_query("(name:~ask name:~doc*)").expression == parse(
        'and(search(name, "ask"), search(name, "doc*"))'
    )


def test_a_filter_without_a_form_as_query_is_kept():
    where = 'and(eq(status, "error"), like(name, "d_sk"), has(metadata, \'{"a": 1}\'))'

    query, remaining = translate(parse(where))

    assert query == "status:error"
    assert [format_filter(part) for part in remaining] == [
        'like(name, "d_sk")',
        'has(metadata, "{\\"a\\": 1}")',
    ]


@fuzz_settings(300)
@given(filters([UUID(int=5)]))
def test_a_random_filter_is_the_same_after_formatting(text):
    expression = parse(text)

    assert parse(format_filter(expression)) == expression
    query = format_query(expression)
    if query is not None:
        # Words move behind the other conditions once, and nothing changes after that.
        ordered = format_query(parse_query(query, NOW).expression)
        assert ordered is not None
        assert format_query(parse_query(ordered, NOW).expression) == ordered


@fuzz_settings(500)
@given(st.text(max_size=60) | st.text(alphabet='abns:-()"*><=~.[] OR5', max_size=40))
def test_any_text_is_a_query_or_a_fault_with_its_place(text):
    try:
        query = parse_query(text, NOW)
    except FilterError as error:
        (detail,) = error.errors
        assert 0 <= detail["start"] < detail["end"]
        assert detail["message"].endswith((".", "?"))
    else:
        assert all(0 <= clause.start < clause.end <= len(text) for clause in query.clauses)
        assert (query.expression is None) == (not query.clauses)


def test_each_field_of_the_language_is_a_field_of_the_api():
    for item in query_fields.QUERY_FIELDS:
        assert item.about
        query = f"{item.name}:*"
        assert parse_query(query).expression == parse(format_filter(parse_query(query).expression))
