"""The Python version of a revision: that of `langgraph.json`, else one that its projects accept."""

from __future__ import annotations

import platform
import posixpath
import re
from collections.abc import Iterator

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from apps.deployments import interpreters
from apps.deployments.build_dirs import FileNotReadable
from apps.deployments.builds.build_context import BuildContext, BuildFailed
from apps.deployments.langgraph_json import ProjectConfig

# The file is read as text, since a parser of TOML may take long for hostile input.
_REQUIREMENT = re.compile(r"^requires-python[ \t]*=[ \t]*[\"']([^\"'\n]{1,200})[\"']", re.MULTILINE)
_CANDIDATES = ("3.11", "3.12", "3.13", "3.14")


def choose_version(context: BuildContext, project: ProjectConfig) -> str | None:
    """Return `major.minor`, or None for the platform's own interpreter.

    `langgraph.json` decides. Without `python_version` it is the platform's interpreter, unless the
    `requires-python` of a local project excludes it: then the oldest installed one that fits.
    """
    if project.python_version is not None:
        return project.python_version
    requirements = dict(_read_requirements(context, project))
    accepted = SpecifierSet(",".join(requirements.values()))
    if accepted.contains(platform.python_version(), prereleases=True):
        return None
    texts = ", ".join(f"{path} requires Python {text}" for path, text in requirements.items())
    for version in _CANDIDATES:
        # The patch of an installed interpreter is unknown; a newer one is what it should have.
        if accepted.contains(f"{version}.99") and _is_installed(version):
            context.log.write(f"    Python {version}, since {texts}")
            return version
    raise BuildFailed(
        f"{texts}. The platform runs Python {platform.python_version()}, and this machine has no"
        " other version that fits."
    )


def _read_requirements(context: BuildContext, project: ProjectConfig) -> Iterator[tuple[str, str]]:
    """Yield the path and `requires-python` of each project's pyproject.toml that has a valid one.

    The installer reports an invalid one.
    """
    folders = [project.resolve(folder) for folder in project.folders]
    if project.source is not None:
        folders.append(project.source.root)
    for folder in folders:
        path = posixpath.join(folder, "pyproject.toml")
        try:
            match = _REQUIREMENT.search(context.directory.read_text(path))
            if match is not None and SpecifierSet(match[1]) is not None:
                yield path, match[1]
        except (FileNotReadable, InvalidSpecifier):
            continue


def _is_installed(version: str) -> bool:
    try:
        interpreters.find_interpreter(version)
    except interpreters.InterpreterNotFound:
        return False
    return True
