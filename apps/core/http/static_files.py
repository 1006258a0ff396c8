"""Static files with hashed names, including ES module imports, and one bundled style sheet."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from django.contrib.staticfiles.finders import AppDirectoriesFinder
from django.core.files.base import ContentFile
from django.core.files.storage import InMemoryStorage, Storage
from whitenoise.storage import CompressedManifestStaticFilesStorage

STYLE_SHEET = "css/app.css"
_COMMENT = re.compile(r"^[ \t]*(?:/\*(?:(?!\*/).)*\*/[ \t]*$|//[^\n]*$)", re.MULTILINE | re.DOTALL)
"""A comment of a script that begins a line and has nothing behind it."""
_IMPORT = re.compile(r'@import url\("(?P<path>[\w/.-]+)"\) layer\((?P<layer>\w+)\);')


# Packages whose static files are not served: htmx comes from npm (comments in these copies parse
# as imports of missing modules), and the API has no browsable pages.
EXCLUDED_APPS = {"django_htmx", "rest_framework"}


class AppFinder(AppDirectoriesFinder):
    """Static folders of the installed apps, except `EXCLUDED_APPS`."""

    def __init__(self, app_names: Sequence[str] | None = None) -> None:
        super().__init__(app_names)
        self.apps = [app for app in self.apps if app not in EXCLUDED_APPS]
        self.storages = {app: self.storages[app] for app in self.apps}


class ModuleManifestStorage(CompressedManifestStaticFilesStorage):  # type: ignore[misc]  # untyped
    """Hashes file names for long-lived caches and inlines the style sheet's imports.

    The source stays in many small files; the browser loads one. Our scripts are served without
    their comments, a quarter of their size.
    """

    support_js_module_import_aggregation = True
    manifest_strict = False

    def hashed_name(self, name: str, content: Any = None, filename: str | None = None) -> str:
        """Return the hashed name, or the plain name where nothing was collected, as in tests."""
        try:
            return str(super().hashed_name(name, content, filename))
        except ValueError:
            if content is None and filename is None:
                return name
            raise

    def post_process(
        self,
        paths: dict[str, tuple[Storage, str]],
        dry_run: bool = False,  # noqa: FBT001, FBT002  (Django's signature)
        **options: Any,
    ) -> Iterator[Any]:
        if STYLE_SHEET in paths:
            bundle = InMemoryStorage()
            bundle.save(STYLE_SHEET, ContentFile(inline_imports(paths, STYLE_SHEET)))
            paths = {**paths, STYLE_SHEET: (bundle, STYLE_SHEET)}
        scripts = InMemoryStorage()
        for name in [name for name in paths if name.startswith("js/") and name.endswith(".js")]:
            scripts.save(name, ContentFile(remove_comments(_read_text(paths, name))))
            paths = {**paths, name: (scripts, name)}
        yield from super().post_process(paths, dry_run, **options)


def remove_comments(script: str) -> str:
    """Remove the comments that begin a line; lines keep their numbers."""
    return _COMMENT.sub(lambda match: "\n" * match[0].count("\n"), script)


def inline_imports(paths: dict[str, tuple[Storage, str]], name: str) -> str:
    """Replace each `@import ... layer(x)` by the file's content in `@layer x {}`."""
    folder = name.rpartition("/")[0]

    def replace(match: re.Match[str]) -> str:
        content = _read_text(paths, f"{folder}/{match['path']}")
        return f"@layer {match['layer']} {{\n{content}}}\n"

    return _IMPORT.sub(replace, _read_text(paths, name))


def _read_text(paths: dict[str, tuple[Storage, str]], name: str) -> str:
    storage, path = paths[name]
    with storage.open(path) as file:
        return str(file.read().decode())
