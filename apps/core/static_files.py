"""Static files with hashes in their names, ES module imports included."""

from __future__ import annotations

from collections.abc import Sequence

from django.contrib.staticfiles.finders import AppDirectoriesFinder
from whitenoise.storage import CompressedManifestStaticFilesStorage

# Packages whose static files no page uses: htmx itself comes from npm (and the comments of these
# copies read like imports of modules that do not exist), the API has no browsable pages.
UNUSED = {"django_htmx", "rest_framework"}


class ModuleManifestStorage(CompressedManifestStaticFilesStorage):  # type: ignore[misc]  # untyped  # type: ignore[misc]  # untyped
    support_js_module_import_aggregation = True
    manifest_strict = False


class AppFinder(AppDirectoriesFinder):
    """The static folders of the installed apps, without those that no page uses."""

    def __init__(self, app_names: Sequence[str] | None = None) -> None:
        super().__init__(app_names)
        self.apps = [app for app in self.apps if app not in UNUSED]
        self.storages = {app: self.storages[app] for app in self.apps}
