"""Models that are rendered less often equal those that Django renders after each operation."""

from __future__ import annotations

from typing import Any

from django.apps.registry import Apps
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.state import ProjectState

from apps.core.migration_rendering import render_changed_models_only

_ORIGINAL = ProjectState.add_model


def describe(apps: Apps) -> dict[str, Any]:
    return {
        model._meta.label: (
            {field.name: field.deconstruct()[1] for field in model._meta.local_fields},
            {index.name for index in model._meta.indexes},
            {constraint.name for constraint in model._meta.constraints},
        )
        for model in apps.get_models(include_auto_created=True)
    }


def test_models_after_all_migrations_are_those_of_django():
    loader = MigrationLoader(None)
    state = ProjectState(real_apps=loader.unmigrated_apps)
    assert state.apps is not None

    with render_changed_models_only():
        for key in loader.graph._generate_plan(loader.graph.leaf_nodes(), at_end=True):
            state = loader.graph.nodes[key].mutate_state(state)

    expected = loader.project_state()
    assert state.models.keys() == expected.models.keys()
    assert describe(state.apps) == describe(expected.apps)
    assert ProjectState.add_model is _ORIGINAL
