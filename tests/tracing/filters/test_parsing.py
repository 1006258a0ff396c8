"""From text to the tree: forms that clients send, values, pairs, and errors with their places."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.trace_store.errors import FilterError
from apps.trace_store.filters import all_of, parse, quote
from apps.trace_store.filters.fields import BY_NAME, FIELDS, OPERATORS, FieldType, ItemKind
from apps.trace_store.filters.nodes import And, AnyItem, Comparison, Condition, JsonObject, Not, Or
from apps.trace_store.filters.parsing import MAX_CONDITIONS
from apps.trace_store.filters.syntax import MAX_DEPTH, MAX_LENGTH

KEY, VALUE = BY_NAME["metadata_key"], BY_NAME["metadata_value"]
K = Condition(KEY, Comparison.EQUAL, "k")
V = Condition(VALUE, Comparison.EQUAL, "v")


def condition(name, comparison, value=None):
    return Condition(BY_NAME[name], comparison, value)


def refused(text):
    with pytest.raises(FilterError) as caught:
        parse(text)
    assert caught.value.status == 400
    assert caught.value.code == "filter_invalid"
    (error,) = caught.value.errors
    assert (
        caught.value.detail
        == f"line {error['line']}, column {error['column']}: " + (error["message"])
    )
    return error["line"], error["column"], error["message"]


@pytest.mark.parametrize(
    "text",
    [
        'and(eq(run_type, "chain"), gt(latency, 10), gt(total_tokens, 5000))',
        'eq(name, "extractor")',
        'and(eq(feedback_key, "user_score"), eq(feedback_score, 1))',
        'and(gt(start_time, "2023-07-15T12:34:56Z"), or(neq(error, null), eq(name, "x")))',
        'and(or(has(tags, "experimental"), has(tags, "beta")), gt(latency, 2))',
        'and(not(has(metadata, \'{"foo": "bar"}\')), exists(metadata, "tenant_id"))',
        'eq(thread_id, "thread_abc123")',
        'and(eq(thread_id, "t"), eq(status, "success"))',
        'and(eq(trace_id, "0190a1b2-c3d4-7ef0-a5b6-6ea3a82e9328"))',
        "or(neq(error, null), and(eq(feedback_key, 'helpful'), lt(feedback_score, 0.2)))",
        'and(in(metadata_key, ["session_id","thread_id"]), eq(metadata_value, "t-1"))',
    ],
)
def test_what_clients_and_their_documentation_send_is_understood(text):
    assert parse(text) == parse(text.replace(", ", "\n ,\t").replace("(", " ( "))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("eq(name, 'a')", condition("name", Comparison.EQUAL, "a")),
        ('eq("name", "a")', condition("name", Comparison.EQUAL, "a")),
        ("eq(name, 5.0)", condition("name", Comparison.EQUAL, "5.0")),
        ("eq(name, TRUE)", condition("name", Comparison.EQUAL, "true")),
        ("eq(run_type, 'LLM')", condition("run_type", Comparison.EQUAL, "llm")),
        ("in(status, ['ERROR'])", condition("status", Comparison.AMONG, ("error",))),
        ("neq(name, 'a')", Not(condition("name", Comparison.EQUAL, "a"))),
        ("eq(error, Null)", Not(condition("error", Comparison.PRESENT))),
        ("neq(error, null)", condition("error", Comparison.PRESENT)),
        ("is_null(error)", Not(condition("error", Comparison.PRESENT))),
        ("not_like(name, '%')", Not(condition("name", Comparison.LIKE, "%"))),
        ("has(tag, 'x')", condition("tags", Comparison.EQUAL, "x")),
        ("in(tags, 'x')", condition("tags", Comparison.AMONG, ("x",))),
        ("gt(total_cost, 1e-6)", condition("total_cost", Comparison.GREATER, Decimal("1e-6"))),
        ("gt(latency, '1h30m')", condition("latency", Comparison.GREATER, Decimal(5400))),
        ("gt(latency, '.5 s')", condition("latency", Comparison.GREATER, Decimal("0.5"))),
        ("lt(latency, '2.5')", condition("latency", Comparison.LESS, Decimal("2.5"))),
        ("eq(is_root, 'False')", condition("is_root", Comparison.EQUAL, value=False)),
        (
            "eq(id, '0190a1b2c3d47ef0a5b66ea3a82e9328')",
            condition("id", Comparison.EQUAL, UUID("0190a1b2-c3d4-7ef0-a5b6-6ea3a82e9328")),
        ),
        (
            "lt(end_time, '2026-01-02T03:04:05+02:00')",
            condition("end_time", Comparison.LESS, datetime(2026, 1, 2, 1, 4, 5, tzinfo=UTC)),
        ),
        (
            "gt(start_time, '2026-01-02')",
            condition("start_time", Comparison.GREATER, datetime(2026, 1, 2, tzinfo=UTC)),
        ),
        (
            "has(metadata, '{\"a\": [1, 2.50, null, true]}')",
            condition("metadata", Comparison.CONTAINS, JsonObject('{"a": [1, 2.50, null, true]}')),
        ),
        ("eq(name, '\\ud83d\\ude00\\n\\'')", condition("name", Comparison.EQUAL, "\U0001f600\n'")),
        ("eq(name, 'a\\u0000\\ud800')", condition("name", Comparison.EQUAL, "a\ufffd\ufffd")),
        ("eq(name, 'a\x00\ud800')", condition("name", Comparison.EQUAL, "a\ufffd\ufffd")),
        ("and(eq(name, 'a'))", condition("name", Comparison.EQUAL, "a")),
        (
            "or(eq(name, 'a'), not(is_not_null(error)))",
            Or(
                (
                    condition("name", Comparison.EQUAL, "a"),
                    Not(condition("error", Comparison.PRESENT)),
                )
            ),
        ),
    ],
)
def test_a_condition_has_values_of_its_fields_type(text, expected):
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("eq(metadata_key, 'k')", AnyItem(ItemKind.METADATA, (K,))),
        ("and(neq(metadata_key, 'k'))", Not(AnyItem(ItemKind.METADATA, (K,)))),
        (
            "and(eq(metadata_key, 'k'), eq(metadata_value, 'v'))",
            AnyItem(ItemKind.METADATA, (K, V)),
        ),
        (
            "and(eq(metadata_key, 'k'), neq(metadata_value, 'v'))",
            AnyItem(ItemKind.METADATA, (K,), (V,)),
        ),
        (
            "and(neq(metadata_key, 'k'), neq(metadata_value, 'v'))",
            And((Not(AnyItem(ItemKind.METADATA, (K,))), Not(AnyItem(ItemKind.METADATA, (V,))))),
        ),
        (
            "and(eq(metadata_key, 'k'), and(eq(metadata_value, 'v')))",
            And((AnyItem(ItemKind.METADATA, (V,)), AnyItem(ItemKind.METADATA, (K,)))),
        ),
        (
            "and(eq(metadata_key, 'k'), not(eq(metadata_value, 'v')))",
            And((Not(AnyItem(ItemKind.METADATA, (V,))), AnyItem(ItemKind.METADATA, (K,)))),
        ),
    ],
)
def test_conditions_on_pairs_mean_one_pair_where_they_stand_together(text, expected):
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("text", "line", "column", "part"),
    [
        ("", 1, 1, "the filter ends, where a name is due"),
        ("  \n ", 1, 1, "the filter ends"),
        ("name", 1, 5, "where `(` is due"),
        ("5", 1, 1, "`5` is here, where a name is due"),
        ("eq(name, 'a') eq", 1, 15, "where the end is due"),
        ("eq(name,\n   'a', )", 2, 9, "`)` is here"),
        ("eq(name,, 'a')", 1, 9, "`,` is here, where `(`, `[`, a name"),
        ("eq(name, {})", 1, 10, "`{` is here"),
        ("eq(name, 'a)", 1, 10, "this ' has no end"),
        ("eq(name, 'a\\d')", 1, 12, "`\\d` is no escape"),
        ("eq(name, 'a\n\n \\x')", 3, 2, "`\\x` is no escape"),
        ("and()", 1, 1, "`and` takes one condition or more"),
        ("not(eq(name, 'a'), eq(name, 'b'))", 1, 1, "`not` takes one condition"),
        ("and(eq(name, 'a'), true)", 1, 20, "a condition is due here"),
        ("and(equals(name, 'a'))", 1, 5, "there is no `equals`; did you mean `eq`?"),
        ("lik(name, 'a')", 1, 1, "there is no `lik`; did you mean `like`?"),
        ("xyzzy(name)", 1, 1, "there is no `xyzzy`"),
        ("eq(Name, 'a')", 1, 4, "did you mean `name`?"),
        ("eq(total_tokns, 1)", 1, 4, "did you mean `total_tokens`?"),
        ("eq(5, 'a')", 1, 4, "the name of a field is due here"),
        ("eq()", 1, 1, "`eq` says no field"),
        ("eq(name)", 1, 1, "`eq` takes a field and one value"),
        ("in(name, 'a', 'b')", 1, 1, "`in` takes a field and a list"),
        ("is_null(name, 1)", 1, 15, "`is_null` takes nothing but the field"),
        ("eq(name, ['a'])", 1, 11, "a value is due here, not a list"),
        ("eq(name, eq(name, 'a'))", 1, 10, "a value is due here, not a condition"),
        ("eq(run_type, llm)", 1, 14, '`llm` is no value; a text stands in quotes: "llm"'),
        ("gt(name, null)", 1, 10, "null is only equal or not equal"),
        ("in(name, ['a', null])", 1, 16, "null is only equal or not equal"),
        ("like(name, 'a\\\\')", 1, 12, "a pattern does not end with a backslash"),
        ("like(id, '%')", 1, 1, "`id` is an id and does not take `like`"),
        ("eq(inputs, 'a')", 1, 1, "`inputs` is content and does not take `eq`, but search"),
        ("search(tags, 'a')", 1, 1, "does not take `search`"),
        ("search(' - ')", 1, 8, "at least one letter or digit"),
        ("has(metadata, 'k')", 1, 15, "this is no JSON object"),
        ("has(metadata, '[1]')", 1, 15, "this is no JSON object"),
        ("has(metadata, '{\"a\": NaN}')", 1, 15, "this is no JSON object"),
        ("has(metadata, '{\"a\": 1e999999}')", 1, 15, "this is no JSON object"),
        ("eq(id, 'x')", 1, 8, "`x` is no id (a UUID)"),
        ("gt(total_tokens, 'many')", 1, 18, "`many` is no number"),
        ("gt(total_tokens, 1e100)", 1, 18, "a number may have 60 digits"),
        ("gt(total_tokens, 1e9999999999)", 1, 18, "is no number"),
        ("gt(latency, '5 parsecs')", 1, 13, "`5 parsecs` is no duration"),
        ("gt(start_time, 5)", 1, 16, "`5` is no time"),
        ("gt(start_time, '0001-01-01T00:00:00+05:00')", 1, 16, "is no time"),
        ("eq(is_root, 2)", 1, 13, "`2` is neither true nor false"),
    ],
)
def test_an_error_points_at_its_place(text, line, column, part):
    found_line, found_column, message = refused(text)

    assert (found_line, found_column) == (line, column)
    assert part in message


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("x" * (MAX_LENGTH + 1), "a filter may have 100,000 characters"),
        ("eq(name, '" + "a" * 1_000_000 + "')", "a filter may have 100,000 characters"),
        ("not(" * (MAX_DEPTH + 1) + "eq(name, 'a')" + ")" * MAX_DEPTH, "calls may stand 50 deep"),
        ("not(" * MAX_DEPTH + "eq(name, 'a')" + ")" * MAX_DEPTH, "calls may stand 50 deep"),
        ("not(" * MAX_DEPTH + "eq(name, 'a'", "the filter ends"),
        ("not(" * 20_000 + ")" * 20_000, "calls may stand 50 deep"),
        ("(" * MAX_LENGTH, "`(` is here"),
        ("in(name, " + "[" * 50_000, "`[` is here"),
        (f"or({','.join(['is_null(name)'] * (MAX_CONDITIONS + 1))})", "may have 200 conditions"),
        ("has(metadata, '" + '{"a":' * 200 + "1" + "}" * 200 + "')", "this is no JSON object"),
        ("has(metadata, '" + '{"a":' * 9000 + "1" + "}" * 9000 + "')", "this is no JSON object"),
    ],
)
def test_what_is_too_much_is_refused(text, part):
    assert part in refused(text)[2]


def test_as_much_as_may_be_is_taken():
    deep = "not(" * (MAX_DEPTH - 1) + "eq(name, 'a')" + ")" * (MAX_DEPTH - 1)
    ids = ", ".join(f'"{UUID(int=number)}"' for number in range(2_400))

    assert isinstance(parse(deep), Not)
    assert len(parse(f"in(id, [{ids}])").value) == 2_400


def test_every_field_takes_the_operators_of_its_kind_and_no_others():
    values = {
        FieldType.UUID: f"'{UUID(int=1)}'",
        FieldType.TIME: "'2026-01-02'",
        FieldType.BOOLEAN: "true",
    }
    every = {one for operators in OPERATORS.values() for one in operators}
    for field in FIELDS:
        taken = {*OPERATORS[field.kind], *(["search"] if field.is_searched else [])}
        for name in every:
            value = "" if name.startswith("is_") else f", {values.get(field.kind, 5)}"
            if name == "has" and field.kind is FieldType.OBJECT:
                value = ", '{}'"
            text = f"{name}({field.name}{value})"
            if name in taken:
                parse(text)
            else:
                assert f"does not take `{name}`" in refused(text)[2], text


@given(st.text())
def test_any_text_quoted_is_that_text(text):
    expected = "".join("\ufffd" if c == "\x00" or "\ud800" <= c <= "\udfff" else c for c in text)

    assert parse(f"eq(name, {quote(text)})") == condition("name", Comparison.EQUAL, expected)


def test_filters_are_joined_without_sharing_pairs():
    one, other = parse("eq(metadata_key, 'k')"), parse("eq(metadata_value, 'v')")

    assert all_of([None, one, other]) == And((one, other))
    assert all_of([one, None]) == one
    assert all_of([None]) is None


TOKENS = st.sampled_from(
    [
        *(
            "and",
            "or",
            "not",
            "eq",
            "neq",
            "in",
            "like",
            "has",
            "exists",
            "search",
            "gt",
            "is_null",
        ),
        *("name", "latency", "metadata", "metadata_key", "tags", "id", "start_time", "is_root"),
        *("(", ")", "[", "]", ",", '"', "'", "\\", "null", "true", "5", "1e9", "-", ".", "\n"),
        *('"a"', "'{}'", '"5s"', '"2026-01-02"', "\u0661", "\x00", "\ud800", "\u202e", "{", "%"),
    ]
)


@settings(max_examples=500)
@given(st.text() | st.lists(TOKENS, max_size=30).map("".join))
def test_any_text_is_a_filter_or_a_clear_refusal(text):
    check_any(text)


@pytest.mark.slow
@settings(max_examples=20_000, deadline=None)
@given(st.text() | st.lists(TOKENS, max_size=60).map("".join))
def test_any_text_is_a_filter_or_a_clear_refusal_tens_of_thousands_of_times(text):
    check_any(text)


def check_any(text):
    try:
        parse(text)
    except FilterError as error:
        (told,) = error.errors
        lines = text.split("\n")
        assert 1 <= told["line"] <= max(len(lines), 1)
        assert 1 <= told["column"] <= len(lines[told["line"] - 1]) + 1
