"""docs/filter-language.md is true: its examples, its table of fields, its messages."""

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

PAGE = Path("docs/filter-language.md").read_text()


@dataclass
class Example:
    text: str
    runs: list[tuple[bool, dict]]


def examples():
    for block in re.findall(r"```filter\n(.*?)```", PAGE, re.DOTALL):
        lines = block.splitlines()
        begin = next(at for at, line in enumerate(lines) if line[:2] in {"+ ", "- "})
        runs = [(line[0] == "+", json.loads(line[2:])) for line in lines[begin:]]
        yield Example("\n".join(lines[:begin]), runs)


def of_example(said):
    """The run as clients send it, and its feedback."""
    run = dict(said)
    feedback = run.pop("feedback", [])
    start = datetime.fromisoformat(run.get("start_time", "2026-01-02T03:04:05Z")).astimezone(UTC)
    seconds = run.pop("seconds", 1)
    end = None if seconds is None else (start + timedelta(seconds=seconds)).isoformat()
    extra = {"metadata": run.pop("metadata", {})}
    quiet = {"inputs": {}, "outputs": {}, "end_time": end, "extra": extra}
    return wire_run(**(quiet | run), start=start), feedback


def test_all_examples_of_the_page_are_read():
    assert len(list(examples())) == PAGE.count("```filter\n") > 0


@pytest.mark.parametrize("example", list(examples()), ids=lambda one: one.text[:60])
def test_an_example_holds(workspace, example):
    expected = {}
    for is_match, said in example.runs:
        run, feedback = of_example(said)
        ingest(workspace, run)
        expected[UUID(run["id"])] = is_match
        for one in feedback:
            Feedback(workspace=workspace, run_id=UUID(run["id"]), **one).save()
    expression = parse(example.text)

    page = run_store.query(workspace.pk, RunQuery(where=expression), limit=10)

    assert {run.row.id for run in page.runs} == {
        one for one, is_match in expected.items() if is_match
    }
    rows = [run.row for run in run_store.query(workspace.pk, RunQuery(), limit=10).runs]
    subjects = load_subjects(workspace.pk, rows)
    assert {one.run.id: matches(expression, one) for one in subjects} == expected


def test_every_field_stands_in_the_table_with_its_names_and_its_kind():
    rows = re.findall(r"^\| (`[a-z_`, ]+`) \| ([a-z, ]+) \|", PAGE, re.MULTILINE)
    told = {
        tuple(name.strip("`") for name in names.split(", ")): kind.removesuffix(", searched")
        for names, kind in rows
    }

    fields = {(field.name, *field.aliases): str(field.kind) for field in FIELDS}
    assert {names: kind for names, kind in told.items() if names[0] in BY_NAME} == fields


@pytest.mark.parametrize(
    ("text", "message"),
    re.findall(r"^\| `(.+?)` \| (line \d+, column .*?) \|$", PAGE, re.MULTILINE),
)
def test_a_message_is_as_the_page_says(text, message):
    with pytest.raises(FilterError) as caught:
        parse(text)

    assert caught.value.detail == message
