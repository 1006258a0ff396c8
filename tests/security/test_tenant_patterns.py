"""Patterns that tenants write cannot stall the process that matches them."""

from __future__ import annotations

import time
from fnmatch import fnmatchcase

import pytest

from apps.agent_server.web.cors import response_headers
from apps.core.linear_regex import compile_pattern
from apps.deployments.langgraph_json.sections import Cors
from apps.trace_store.filters.text_matching import matches_like

ORIGIN = "https://" + "a" * 290
MAX_SECONDS = 0.1
"""A backtracking matcher takes seconds or longer for each attack below."""


@pytest.mark.parametrize(
    "pattern",
    [
        "https://" + "a?" * 29 + "a" * 29 + "b",
        "https://(a+)+b",
        "https://(a|a|aa)*b",
        "https://a*a*a*a*a*a*b",
        "(?i)(h|t|p|s|:|/|a{0,20}){0,40}b",
    ],
)
def test_origin_pattern_is_matched_in_linear_time(pattern: str) -> None:
    cors = Cors(allow_origin_regex=pattern)
    started = time.process_time()

    assert response_headers(cors, ORIGIN) == []

    assert time.process_time() - started < MAX_SECONDS


def test_origin_pattern_matches_the_whole_origin() -> None:
    cors = Cors(allow_origin_regex=r"https://[a-z]+\.example")

    assert response_headers(cors, "https://app.example") == [
        (b"access-control-allow-origin", b"https://app.example"),
        (b"vary", b"Origin"),
    ]
    for origin in ("https://app.example.evil", "x-https://app.example", "https://app.example\n"):
        assert response_headers(cors, origin) == []


def test_price_pattern_is_matched_in_linear_time() -> None:
    started = time.process_time()

    assert compile_pattern("(a+)+$").search("a" * 500 + "!") is None

    assert time.process_time() - started < MAX_SECONDS


@pytest.mark.parametrize("pattern", ["a{1000}{1000}", "(?=a)", r"(a)\1", "((a{99}){99}){99}"])
def test_unbounded_or_backtracking_pattern_is_rejected(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"invalid|bad"):
        compile_pattern(pattern)


def test_wildcards_of_filters_and_header_rules_do_not_backtrack() -> None:
    text = "a" * 10_000
    started = time.process_time()

    assert not matches_like(text, "%a" * 200 + "%b")
    assert not fnmatchcase(text, "*a" * 200 + "*b")

    assert time.process_time() - started < MAX_SECONDS
