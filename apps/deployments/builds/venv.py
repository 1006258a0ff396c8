"""The environment of a revision: an interpreter, the repository's dependencies, LangGraph."""

from __future__ import annotations

import posixpath
from pathlib import Path

from django.conf import settings

from apps.deployments import sandbox
from apps.deployments.build_dirs import package_cache
from apps.deployments.builds import interpreters, sandbox_run
from apps.deployments.builds.build_context import Work
from apps.deployments.builds.errors import BuildFailed
from apps.deployments.langgraph_json import Project
from apps.deployments.sandbox import usage

# What the graph host imports besides the standard library.
OF_THE_HOST = ("langgraph", "msgpack")
_PACKAGING = ("pyproject.toml", "setup.py", "setup.cfg")


def make(work: Work, project: Project) -> None:
    """Make the environment and install into it; `BuildFailed` with what the installer said."""
    try:
        interpreter = interpreters.find(project.python_version)
    except interpreters.NoInterpreter as error:
        raise BuildFailed(str(error)) from None
    uv = str(interpreters.uv_program())
    rules = _policy(work, project, interpreter)
    if _cached_mb(work) > settings.BUILD_DISK_MB / 2:
        # uv waits for other builds of the organization before it empties their cache.
        sandbox_run.run(work, rules, [uv, "cache", "clean", "--quiet"])
        rules = _policy(work, project, interpreter)
    with work.step(
        f"Making an environment with Python {project.python_version or 'of this platform'}"
    ):
        seed = ["--seed"] if project.package_tools or project.installer == "pip" else []
        made = sandbox_run.run(
            work,
            rules,
            [
                *(uv, "venv", "--quiet", "--clear", "--no-project", *seed),
                *("--python", str(interpreter), str(work.place.venv)),
            ],
        )
        if made.code != 0:
            raise BuildFailed(f"The environment cannot be made: {_why(made.tail)}")
    with work.step("Installing dependencies"):
        for argv in _installations(work, project, uv):
            installed = sandbox_run.run(work, rules, argv)
            if installed.code != 0:
                raise BuildFailed(f"The dependencies cannot be installed: {_why(installed.tail)}")
    with work.step("Compiling"):
        # Hosts see both folders read-only, so what is not compiled now is compiled at each start.
        compiler = [str(work.place.python), "-P", "-m", "compileall", "-q", "-j", "0"]
        wanted = [str(work.place.source)]
        if project.installer == "pip":
            wanted.append(str(work.place.venv))
        sandbox_run.run(
            work, rules, [*compiler, "-x", r"/(\.git|node_modules)/", *wanted], show=_nothing
        )


def _nothing(_: str) -> bool:
    return False


def _cached_mb(work: Work) -> int:
    return usage.disk([package_cache(work.organization_number)]) // sandbox.MIB


def _policy(work: Work, project: Project, interpreter: Path) -> sandbox.Policy:
    installer = sandbox.installer_access()
    uv = interpreters.uv_program()
    place = work.place
    env = {
        **installer.env,
        "NO_COLOR": "1",
        "PATH": f"{place.venv}/bin:/usr/local/bin:/usr/bin:/bin",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INPUT": "1",
        "PIP_PROGRESS_BAR": "off",
        "PYTHONUNBUFFERED": "1",
        "UV_CACHE_DIR": str(package_cache(work.organization_number)),
        "UV_COMPILE_BYTECODE": "1",
        # The cache and the environment are different mounts inside, which no hard link crosses.
        "UV_LINK_MODE": "copy",
        "UV_NO_PROGRESS": "1",
        "UV_PYTHON_DOWNLOADS": "never",
        "VIRTUAL_ENV": str(place.venv),
    }
    if project.pip_config_file:
        env["PIP_CONFIG_FILE"] = str(place.source / project.place(project.pip_config_file))
    return sandbox_run.policy(
        work,
        cwd=place.source / project.folder,
        env=env,
        read_only=[uv, *installer.read_only],
        writable=[place.source, place.venv, package_cache(work.organization_number)],
        python=interpreter,
        # What earlier builds cached is not this one's use.
        disk_mb=settings.BUILD_DISK_MB + _cached_mb(work),
    )


def _installations(work: Work, project: Project, uv: str) -> list[list[str]]:
    """What to run: what a lock file says, if there is one, and all else in one resolution."""
    found = []
    if project.source is not None:
        root = str(work.place.source / project.source.root)
        package = ["--package", project.source.package] if project.source.package else []
        found.append([uv, "sync", "--active", "--frozen", "--no-dev", "--project", root, *package])
    words = [*_requirements(work, project), *OF_THE_HOST]
    return [*found, [*_installer(work, project, uv), *words]]


def _installer(work: Work, project: Project, uv: str) -> list[str]:
    if project.installer == "pip":
        return [str(work.place.python), "-m", "pip", "install"]
    return [uv, "pip", "install", "--python", str(work.place.python)]


def _requirements(work: Work, project: Project) -> list[str]:
    """The words for the installer: local projects are installed in place, as their author works."""
    words: list[str] = []
    for folder in project.folders:
        place = project.place(folder)
        full = str(work.place.source / place)
        if any(
            work.place.kind(posixpath.join(place, name)) in ("file", "link") for name in _PACKAGING
        ):
            words += ["--editable", full]
        elif work.place.kind(posixpath.join(place, "requirements.txt")) in ("file", "link"):
            words += ["--requirement", f"{full}/requirements.txt"]
        # A folder without either needs no installer: the graph host has it on its path.
    return [*words, *project.packages]


def _why(tail: list[str]) -> str:
    """The part of an installer's last lines that says what is wrong."""
    lines = [line for line in tail if line.strip()]
    for place, line in enumerate(lines):
        if line.lstrip().startswith(("\N{MULTIPLICATION SIGN}", "error:", "ERROR:", "hint:")):
            return "\n".join(lines[place:][:30])
    return "\n".join(lines[-10:]) or "it gave no reason."
