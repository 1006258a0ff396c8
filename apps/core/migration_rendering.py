"""Migrate without rendering most models again after each operation.

Django renders a model again after each operation, with all models that are related to it. Here most
models are related to the workspace, so 90 % of the time of a first `migrate` was the rendering of
models that had not changed. Only the model that an operation creates, or whose indexes or
constraints it changes, is rendered. Operations that need the others (`RunPython`, changed
relations) then render all of them, as they do after Django's own delayed rendering.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db.migrations.state import ModelState, ProjectState

_clone = ProjectState.clone
_reload_model = ProjectState.reload_model


@contextmanager
def render_changed_models_only() -> Iterator[None]:
    """Apply migrations in this block with less rendering."""
    replaced = {name: getattr(ProjectState, name) for name in _REPLACEMENTS}
    for name, method in _REPLACEMENTS.items():
        setattr(ProjectState, name, method)
    try:
        yield
    finally:
        for name, method in replaced.items():
            setattr(ProjectState, name, method)


def _add_model(state: Any, model_state: ModelState) -> None:
    key = model_state.app_label, model_state.name_lower
    state.models[key] = model_state
    if state._relations is not None:  # noqa: SLF001  (as in the replaced method)
        state.resolve_model_relations(key)
    _render(state, key)


def _append_option(
    state: Any, app_label: str, model_name: str, option_name: str, option: Any
) -> None:
    key = app_label, model_name
    options = state.models[key].options
    options[option_name] = [*options[option_name], option]
    _render(state, key)


def _render(state: Any, key: tuple[str, str]) -> None:
    if "apps" not in state.__dict__:
        return
    # The other models keep their references to the earlier class.
    state.is_delayed = True
    with state.apps.bulk_update():
        state.apps.unregister_model(*key)
    state.apps.render_multiple([state.models[key]])


def _copy(state: Any) -> Any:
    """Copy the state before or after an operation, and remember the other one in each."""
    copy: Any = _clone(state)
    state.other, copy.other = copy, state
    return copy


def _reload_with_relations(
    state: Any, app_label: str, model_name: str, *, delay: bool = False
) -> None:
    if not delay:
        # The operation looks up relations in both states; the next access renders all models.
        for either in (state, getattr(state, "other", state)):
            either.clear_delayed_apps_cache()
    _reload_model(state, app_label, model_name, delay=delay)


_REPLACEMENTS = {
    "clone": _copy,
    "add_model": _add_model,
    "_append_option": _append_option,
    "reload_model": _reload_with_relations,
}
