"""The filter parser: forms that clients send, values, pairs, and errors with their positions."""

from __future__ import annotations

import re
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
from tests.examples import fuzz_settings

KEY, VALUE = BY_NAME["metadata_key"], BY_NAME["metadata_value"]
K = Condition(KEY, Comparison.EQUAL, "k")
V = Condition(VALUE, Comparison.EQUAL, "v")


def condition(name, comparison, value=None):
    return Condition(BY_NAME[name], comparison, value)


def parse_error(text):
    with pytest.raises(FilterError) as caught:
        parse(text)
    assert caught.value.status == 400
    assert caught.value.code == "filter_invalid"
    (error,) = caught.value.errors
    assert caught.value.detail == error["message"]
    assert re.match(r"[A-Z`]", error["message"]), "a sentence"
    assert error["message"].endswith((".", "?")), "a sentence"
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
def test_filters_of_clients_and_their_documentation_are_parsed(text):
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
def test_a_value_is_converted_to_the_type_of_its_field(text, expected):
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
def test_adjacent_conditions_on_a_pair_apply_to_the_same_pair(text, expected):
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("text", "line", "column", "part"),
    [
        ("", 1, 1, 'The filter is empty. Write a condition, such as `eq(name, "agent")`.'),
        ("  \n ", 1, 1, "The filter is empty"),
        ("name", 1, 5, "The filter ends too early: a `(` is missing."),
        ("status:error", 1, 7, "`field:value` is the form of the query bar."),
        ("5", 1, 1, "`5` cannot stand here. Write a name in its place."),
        ("eq(name, 'a') eq", 1, 15, "The filter is complete before `eq`."),
        ("eq(name,\n   'a', )", 2, 9, "`)` cannot stand here"),
        ("eq(name,, 'a')", 1, 9, "`,` cannot stand here. Write a `(`, a `[`, a name"),
        ("eq(name, {})", 1, 10, "`{` cannot stand here"),
        ("eq(name, 'a)", 1, 10, "This quotation mark is not closed."),
        ("eq(name, 'a\\d')", 1, 12, "`\\d` is not an escape sequence."),
        ("eq(name, 'a\n\n \\x')", 3, 2, "`\\x` is not an escape sequence."),
        ("and()", 1, 1, "`and` takes one condition or more"),
        ("not(eq(name, 'a'), eq(name, 'b'))", 1, 1, "`not` takes one condition"),
        ("and(eq(name, 'a'), true)", 1, 20, "Write a condition here"),
        ("and(equals(name, 'a'))", 1, 5, "There is no function `equals`. Did you mean `eq`?"),
        ("lik(name, 'a')", 1, 1, "There is no function `lik`. Did you mean `like`?"),
        ("xyzzy(name)", 1, 1, "There is no function `xyzzy`."),
        ("eq(Name, 'a')", 1, 4, "Did you mean `name`?"),
        ("eq(total_tokns, 1)", 1, 4, "Did you mean `total_tokens`?"),
        ("eq(5, 'a')", 1, 4, "Write the name of a field here"),
        ("eq()", 1, 1, "`eq` needs a field as its first argument."),
        ("eq(name)", 1, 1, "`eq` takes a field and one value"),
        ("in(name, 'a', 'b')", 1, 1, "`in` takes a field and a list"),
        ("is_null(name, 1)", 1, 15, "`is_null` takes only a field."),
        ("eq(name, ['a'])", 1, 11, "Write one value here, not a list."),
        ("eq(name, eq(name, 'a'))", 1, 10, "Write one value here, not a condition."),
        ("eq(run_type, llm)", 1, 14, '`llm` needs quotes. Write `"llm"`.'),
        ("gt(name, null)", 1, 10, "`null` has no order and is in no list."),
        ("in(name, ['a', null])", 1, 16, "`null` has no order and is in no list."),
        ("like(name, 'a\\\\')", 1, 12, "A pattern cannot end with a single backslash."),
        ("like(id, '%')", 1, 1, "`id` is an id and does not support `like`"),
        (
            "eq(inputs, 'a')",
            1,
            1,
            (
                "`inputs` is content and does not support `eq`."
                " It supports search, is_null and is_not_null."
            ),
        ),
        ("search(tags, 'a')", 1, 1, "does not support `search`"),
        ("search(' - ')", 1, 8, "at least one letter or digit"),
        ("has(metadata, 'k')", 1, 15, "Write a JSON object here"),
        ("has(metadata, '[1]')", 1, 15, "Write a JSON object here"),
        ("has(metadata, '{\"a\": NaN}')", 1, 15, "Write a JSON object here"),
        ("has(metadata, '{\"a\": 1e999999}')", 1, 15, "Write a JSON object here"),
        ("eq(id, 'x')", 1, 8, "`x` is not an id (a UUID)."),
        ("gt(total_tokens, 'many')", 1, 18, "`many` is not a number"),
        ("gt(total_tokens, 1e100)", 1, 18, "A number has at most 60 digits."),
        ("gt(total_tokens, 1e9999999999)", 1, 18, "is not a number"),
        ("gt(latency, '5 parsecs')", 1, 13, "`5 parsecs` is not a duration"),
        ("gt(start_time, 5)", 1, 16, "`5` is not a time"),
        ("gt(start_time, '0001-01-01T00:00:00+05:00')", 1, 16, "is not a time"),
        ("eq(is_root, 2)", 1, 13, "`2` is neither true nor false"),
    ],
)
def test_a_parse_error_names_its_line_and_column(text, line, column, part):
    error_line, error_column, message = parse_error(text)

    assert (error_line, error_column) == (line, column)
    assert part in message


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("x" * (MAX_LENGTH + 1), "A filter has at most 100,000 characters"),
        ("eq(name, '" + "a" * 1_000_000 + "')", "A filter has at most 100,000 characters"),
        (
            "not(" * (MAX_DEPTH + 1) + "eq(name, 'a')" + ")" * MAX_DEPTH,
            "Conditions are nested at most 50",
        ),
        (
            "not(" * MAX_DEPTH + "eq(name, 'a')" + ")" * MAX_DEPTH,
            "Conditions are nested at most 50 levels deep.",
        ),
        ("not(" * MAX_DEPTH + "eq(name, 'a'", "The filter ends too early"),
        ("not(" * 20_000 + ")" * 20_000, "Conditions are nested at most 50 levels deep."),
        ("(" * MAX_LENGTH, "`(` cannot stand here"),
        ("in(name, " + "[" * 50_000, "`[` cannot stand here"),
        (
            f"or({','.join(['is_null(name)'] * (MAX_CONDITIONS + 1))})",
            "A filter has at most 200 conditions.",
        ),
        ("has(metadata, '" + '{"a":' * 200 + "1" + "}" * 200 + "')", "Write a JSON object here"),
        ("has(metadata, '" + '{"a":' * 9000 + "1" + "}" * 9000 + "')", "Write a JSON object here"),
    ],
)
def test_a_filter_above_a_limit_is_rejected(text, part):
    assert part in parse_error(text)[2]


def test_a_filter_at_the_limits_is_parsed():
    deep = "not(" * (MAX_DEPTH - 1) + "eq(name, 'a')" + ")" * (MAX_DEPTH - 1)
    ids = ", ".join(f'"{UUID(int=number)}"' for number in range(2_400))

    assert isinstance(parse(deep), Not)
    assert len(parse(f"in(id, [{ids}])").value) == 2_400


def test_a_field_takes_the_operators_of_its_type_and_no_others():
    values = {
        FieldType.UUID: f"'{UUID(int=1)}'",
        FieldType.TIME: "'2026-01-02'",
        FieldType.BOOLEAN: "true",
    }
    all_operators = {operator for operators in OPERATORS.values() for operator in operators}
    for field in FIELDS:
        supported = {*OPERATORS[field.kind], *(["search"] if field.is_searched else [])}
        for name in all_operators:
            value = "" if name.startswith("is_") else f", {values.get(field.kind, 5)}"
            if name == "has" and field.kind is FieldType.OBJECT:
                value = ", '{}'"
            text = f"{name}({field.name}{value})"
            if name in supported:
                parse(text)
            else:
                assert f"does not support `{name}`" in parse_error(text)[2], text


@given(st.text())
def test_a_quoted_text_is_parsed_as_that_text(text):
    expected = "".join("\ufffd" if c == "\x00" or "\ud800" <= c <= "\udfff" else c for c in text)

    assert parse(f"eq(name, {quote(text)})") == condition("name", Comparison.EQUAL, expected)


def test_filters_are_joined_without_sharing_pairs():
    first, second = parse("eq(metadata_key, 'k')"), parse("eq(metadata_value, 'v')")

    assert all_of([None, first, second]) == And((first, second))
    assert all_of([first, None]) == first
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


@fuzz_settings(200)
@given(st.text() | st.lists(TOKENS, max_size=30).map("".join))
def test_any_text_is_a_filter_or_a_parse_error(text):
    check_filter_or_error(text)


@pytest.mark.slow
@settings(max_examples=20_000, deadline=None)
@given(st.text() | st.lists(TOKENS, max_size=60).map("".join))
def test_tens_of_thousands_of_texts_are_filters_or_parse_errors(text):
    check_filter_or_error(text)


def check_filter_or_error(text):
    try:
        parse(text)
    except FilterError as error:
        (parse_problem,) = error.errors
        lines = text.split("\n")
        assert 1 <= parse_problem["line"] <= max(len(lines), 1)
        assert 1 <= parse_problem["column"] <= len(lines[parse_problem["line"] - 1]) + 1
