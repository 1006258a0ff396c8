"""A class name stands for one concept in all apps."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

from tests.prose.linter import ROOT, list_files

# Views and serializers belong to their routes, and wire shapes are named like OpenAPI components.
EXCLUDED = ("/api/", "/api.py", "/management/commands/", "/migrations/", "schemas/responses.py")
SHARED = {
    "User": "the graph host's is pickled into checkpoints by its name",
}


def find_classes(paths: list[str]) -> dict[str, list[str]]:
    """Return the modules that define each public class at module level."""
    classes: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        for node in ast.parse((ROOT / path).read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name].append(path)
    return classes


def is_checked(path: str) -> bool:
    return (
        path.startswith(("apps/", "config/"))
        and Path(path).suffix == ".py"
        and "sample_agent" not in path
        and not any(part in path for part in EXCLUDED)
    )


def test_each_class_name_is_defined_once():
    classes = find_classes([path for path in list_files() if is_checked(path)])

    repeated = {name: paths for name, paths in classes.items() if len(paths) > 1}
    assert {name: paths for name, paths in repeated.items() if name not in SHARED} == {}
    assert SHARED.keys() <= repeated.keys()
