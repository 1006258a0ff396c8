"""docs/architecture.md names every app, and only paths that exist."""

from __future__ import annotations

import re

from config.env import BASE_DIR

PAGE = (BASE_DIR / "docs/architecture.md").read_text()
MAPPED = set(re.findall(r"^\| `([\w/.]+)` \|", PAGE, re.MULTILINE))


def test_code_map_has_every_app():
    apps = {f"apps/{path.parent.name}" for path in BASE_DIR.glob("apps/*/__init__.py")}

    assert {path for path in MAPPED if path.startswith("apps/")} == apps


def test_paths_of_the_page_exist():
    named = set(re.findall(r"`((?:apps|config|tests|docs|templates|static)/[\w/.-]+)`", PAGE))

    assert {
        path for path in named | {p for p in MAPPED if "/" in p} if not (BASE_DIR / path).exists()
    } == set()


def test_layers_picture_has_every_app():
    picture = PAGE.split("## Layers")[1].split("## Code map")[0]
    apps = {path.parent.name for path in BASE_DIR.glob("apps/*/__init__.py")}

    assert {app for app in apps if not re.search(rf"\b{app}\b", picture)} == set()
