"""Static files with hashes in their names, ES module imports included, and one style sheet."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from django.contrib.staticfiles.finders import AppDirectoriesFinder
from django.core.files.base import ContentFile
from django.core.files.storage import InMemoryStorage, Storage
from whitenoise.storage import CompressedManifestStaticFilesStorage

STYLE_SHEET = "css/app.css"
_IMPORT = re.compile(r'@import url\("(?P<path>[\w/.-]+)"\) layer\((?P<layer>\w+)\);')


# Packages whose static files no page uses: htmx itself comes from npm (and the comments of these
# copies read like imports of modules that do not exist), the API has no browsable pages.
UNUSED = {"django_htmx", "rest_framework"}


class AppFinder(AppDirectoriesFinder):
    """The static folders of the installed apps, without those that no page uses."""

    def __init__(self, app_names: Sequence[str] | None = None) -> None:
        super().__init__(app_names)
        self.apps = [app for app in self.apps if app not in UNUSED]
        self.storages = {app: self.storages[app] for app in self.apps}


class ModuleManifestStorage(CompressedManifestStaticFilesStorage):  # type: ignore[misc]  # untyped
    """Hashes names for lasting caches; the style sheet's imports are put in its place at once.

    Thirty small files are good to read and write, and one request is good to wait for.
    """

    support_js_module_import_aggregation = True
    manifest_strict = False

    def hashed_name(self, name: str, content: Any = None, filename: str | None = None) -> str:
        """The name with its hash.

        A page asks by name alone and gets it plain where nothing was collected, as in tests.
        """
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
            whole = InMemoryStorage()
            whole.save(STYLE_SHEET, ContentFile(in_one(paths, STYLE_SHEET)))
            paths = {**paths, STYLE_SHEET: (whole, STYLE_SHEET)}
        yield from super().post_process(paths, dry_run, **options)


def in_one(paths: dict[str, tuple[Storage, str]], name: str) -> str:
    """The style sheet with each `@import ... layer(x)` replaced by the file, in `@layer x {}`."""
    folder = name.rpartition("/")[0]

    def put(match: re.Match[str]) -> str:
        inner = _text(paths, f"{folder}/{match['path']}")
        return f"@layer {match['layer']} {{\n{inner}}}\n"

    return _IMPORT.sub(put, _text(paths, name))


def _text(paths: dict[str, tuple[Storage, str]], name: str) -> str:
    storage, path = paths[name]
    with storage.open(path) as file:
        return str(file.read().decode())
