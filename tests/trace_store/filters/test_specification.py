"""docs/filter-language.md describes the parser: its examples, table of fields and messages."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest

from apps.feedback.models import Feedback
from apps.trace_store import RunQuery, run_store
from apps.trace_store.errors import FilterError
from apps.trace_store.filters import parse
from apps.trace_store.filters.fields import BY_NAME, FIELDS
from apps.trace_store.filters.reference import matches
from apps.trace_store.postgres.filtering.subjects import load_subjects
from tests.factories.tracing import ingest, wire_run

DOCUMENT = Path("docs/filter-language.md").read_text()


@dataclass
class Example:
    text: str
    runs: list[tuple[bool, dict]]


def read_examples():
    for block in re.findall(r"```filter\n(.*?)```", DOCUMENT, re.DOTALL):
        lines = block.splitlines()
        first_run = next(number for number, line in enumerate(lines) if line[:2] in {"+ ", "- "})
        runs = [(line[0] == "+", json.loads(line[2:])) for line in lines[first_run:]]
        yield Example("\n".join(lines[:first_run]), runs)


def build_run(description):
    """Return the run as clients send it, and its feedback."""
    run = dict(description)
    feedback = run.pop("feedback", [])
    start = datetime.fromisoformat(run.get("start_time", "2026-01-02T03:04:05Z")).astimezone(UTC)
    seconds = run.pop("seconds", 1)
    end = None if seconds is None else (start + timedelta(seconds=seconds)).isoformat()
    extra = {"metadata": run.pop("metadata", {})}
    defaults = {"inputs": {}, "outputs": {}, "end_time": end, "extra": extra}
    return wire_run(**(defaults | run), start=start), feedback


def test_all_examples_of_the_document_are_read():
    assert len(list(read_examples())) == DOCUMENT.count("```filter\n") > 0


@pytest.mark.parametrize("example", list(read_examples()), ids=lambda item: item.text[:60])
def test_an_example_matches_the_marked_runs(workspace, example):
    expected = {}
    for is_match, description in example.runs:
        run, feedback = build_run(description)
        ingest(workspace, run)
        expected[UUID(run["id"])] = is_match
        for fields in feedback:
            Feedback(workspace=workspace, run_id=UUID(run["id"]), **fields).save()
    expression = parse(example.text)

    page = run_store.query(workspace.pk, RunQuery(where=expression), limit=10)

    assert {run.row.id for run in page.runs} == {
        run_id for run_id, is_match in expected.items() if is_match
    }
    rows = [run.row for run in run_store.query(workspace.pk, RunQuery(), limit=10).runs]
    subjects = load_subjects(workspace.pk, rows)
    assert {subject.run.id: matches(expression, subject) for subject in subjects} == expected


def test_the_table_lists_every_field_with_its_names_and_type():
    rows = re.findall(r"^\| (`[a-z_`, ]+`) \| ([a-z, ]+) \|", DOCUMENT, re.MULTILINE)
    documented = {
        tuple(name.strip("`") for name in names.split(", ")): kind.removesuffix(", searched")
        for names, kind in rows
    }

    fields = {(field.name, *field.aliases): str(field.kind) for field in FIELDS}
    assert {names: kind for names, kind in documented.items() if names[0] in BY_NAME} == fields


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    re.findall(r"^\| `(.+?)` \| (\d+), (\d+) \| (.*?) \|$", DOCUMENT, re.MULTILINE),
)
def test_an_error_message_is_the_documented_one(text, line, column, message):
    with pytest.raises(FilterError) as caught:
        parse(text)

    assert caught.value.detail == message
    [error] = caught.value.errors
    assert (error["line"], error["column"]) == (int(line), int(column))
