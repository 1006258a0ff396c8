"""Filters of projects by their metadata."""

from __future__ import annotations

import pytest

from apps.trace_store.errors import FilterError
from apps.trace_store.filters import parse
from apps.trace_store.filters.orm import filter_to_q
from apps.tracing.models import Project
from tests.factories.tracing import ProjectFactory

EXTRAS = {
    "gold": {"metadata": {"tier": "gold", "n": 5, "model": {"name": "x", "size": 7}}},
    "silver": {"metadata": {"tier": "silver", "medal": "gold"}},
    "empty": {"metadata": {}},
    "without": {},
    "odd": {"metadata": ["tier", "gold"]},
    "null": {"metadata": None},
}
ALL = set(EXTRAS)


@pytest.fixture
def projects(workspace):
    for name, extra in EXTRAS.items():
        ProjectFactory(workspace=workspace, name=name, extra=extra)
    return Project.objects.for_workspace(workspace)


def build_q(text):
    return filter_to_q(
        parse(text), metadata="extra__metadata", columns={"name": "name", "id": "pk"}
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("exists(metadata, 'tier')", {"gold", "silver", "odd"}),
        ("not(exists(metadata, 'tier'))", ALL - {"gold", "silver", "odd"}),
        ('has(metadata, \'{"tier": "gold"}\')', {"gold"}),
        ('has(metadata, \'{"n": 5.0, "model": {"size": 7}}\')', {"gold"}),
        ('not(has(metadata, \'{"tier": "gold"}\'))', ALL - {"gold"}),
        ("and(eq(metadata_key, 'tier'), eq(metadata_value, 'gold'))", {"gold"}),
        ("and(eq(metadata_key, 'tier'), neq(metadata_value, 'gold'))", {"silver"}),
        ("and(neq(metadata_key, 'tier'), eq(metadata_value, 'gold'))", {"silver"}),
        ("neq(metadata_key, 'tier')", ALL - {"gold", "silver"}),
        ("and(eq(metadata_key, 'n'), gt(metadata_value, 4))", {"gold"}),
        ("like(metadata_value, '%old')", {"gold", "silver"}),
        ("or(eq(name, 'empty'), exists(metadata, 'medal'))", {"empty", "silver"}),
        ("and(eq(metadata_value, 'gold'), in(name, ['odd', 'gold']))", {"gold"}),
        ("like(name, '%l')", {"null"}),
        ("ilike(name, 'GOLD')", {"gold"}),
        ("neq(name, 'gold')", ALL - {"gold"}),
    ],
)
def test_projects_are_filtered_by_their_metadata_and_name(projects, text, expected):
    matches = projects.filter(build_q(text))

    assert {project.name for project in matches} == expected


def test_a_negated_filter_combines_with_other_conditions(projects):
    matches = projects.exclude(build_q("exists(metadata, 'tier')")).filter(
        build_q("neq(name, 'empty')")
    )

    assert {project.name for project in matches} == {"without", "null"}


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("gt(latency, 1)", "`latency`"),
        ("eq(feedback_key, 'k')", "`feedback`"),
    ],
)
def test_a_field_that_only_runs_have_is_rejected(text, field):
    with pytest.raises(FilterError) as caught:
        build_q(f"and(eq(name, 'x'), not({text}))")

    assert field in caught.value.detail
    assert "metadata, metadata_key, metadata_value, name and id" in caught.value.detail


@pytest.mark.parametrize("text", ["search('a')", "search(name, 'a')", "search(metadata, 'a')"])
def test_search_is_rejected_for_projects(text):
    with pytest.raises(FilterError, match="lists of runs do"):
        build_q(text)
