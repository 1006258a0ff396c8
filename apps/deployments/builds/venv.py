"""Create the virtual environment of a revision: interpreter, dependencies, LangGraph."""

from __future__ import annotations

import platform
import posixpath
from collections.abc import Sequence
from pathlib import Path

from django.conf import settings

from apps.deployments import interpreters, networks, sandbox
from apps.deployments.build_dirs import package_cache, remove_tree
from apps.deployments.builds import installer, installer_errors, sandbox_run
from apps.deployments.builds.build_context import BuildContext, BuildFailed
from apps.deployments.langgraph_json import ProjectConfig
from apps.deployments.sandbox import usage

# The graph host imports these besides the standard library; LangGraph's own server has the same
# minimum.
GRAPH_HOST_REQUIREMENTS = ("langgraph>=0.4.10", "msgpack")
_COMPILER = Path(__file__).with_name("compile_program.py")
_PACKAGING_FILES = ("pyproject.toml", "setup.py", "setup.cfg")


def create_venv(context: BuildContext, project: ProjectConfig, python: str | None) -> None:
    """Create the environment and install into it; `BuildFailed` has the installer's error.

    `python` is the `major.minor` version of the interpreter, None for the platform's own.
    """
    try:
        interpreter = interpreters.find_interpreter(python)
    except interpreters.InterpreterNotFound as error:
        raise BuildFailed(str(error)) from None
    uv = str(interpreters.uv_path())
    policy = _venv_policy(context, project, interpreter)
    if _cache_size_mb(context) > settings.BUILD_DISK_MB / 2:
        # uv waits for other builds of the organization before it clears the cache.
        sandbox_run.run_command(context, policy, [uv, "cache", "clean", "--quiet"])
        policy = _venv_policy(context, project, interpreter)
    with context.step(f"Creating an environment with Python {python or platform.python_version()}"):
        seed = ["--seed"] if project.package_tools or project.installer == "pip" else []
        result = sandbox_run.run_command(
            context,
            policy,
            [
                *(uv, "venv", "--quiet", "--clear", "--no-project", *seed),
                *("--python", str(interpreter), str(context.directory.venv)),
            ],
        )
        if result.code != 0:
            raise BuildFailed(f"The environment cannot be created: {_describe(result.tail)}")
    with context.step("Installing dependencies"):
        for argv in _install_commands(context, project, uv, policy.egress.indexes):
            result = sandbox_run.run_command(context, policy, argv)
            if result.code != 0:
                raise BuildFailed(f"The dependencies cannot be installed: {_describe(result.tail)}")
    with context.step("Compiling"):
        # Hosts mount both folders read-only, so a start cannot store compiled modules.
        compiler = [str(context.directory.python), "-I", str(_COMPILER)]
        cache = package_cache(context.organization_number) / "compiled"
        folders = [str(context.directory.source), str(context.directory.venv)]
        sandbox_run.run_command(
            context, policy, [*compiler, str(cache), *folders], show=_show_nothing
        )
    remove_tree(_configuration(context))


def _describe(tail: list[str]) -> str:
    return installer_errors.describe_failure(tail, minimum=GRAPH_HOST_REQUIREMENTS[0])


def _show_nothing(_: str) -> bool:
    return False


def _cache_size_mb(context: BuildContext) -> int:
    return usage.disk_usage([package_cache(context.organization_number)]) // sandbox.MIB


def _configuration(context: BuildContext) -> Path:
    return context.directory.folder / "installer"


def _venv_policy(
    context: BuildContext, project: ProjectConfig, interpreter: Path
) -> sandbox.Policy:
    uv = interpreters.uv_path()
    directory = context.directory
    is_proxied = networks.network() is sandbox.Network.PROXIED
    config = installer.read_config(hides_passwords=is_proxied)
    configuration = _configuration(context)
    env = {
        **config.env,
        **config.write(configuration),
        "NO_COLOR": "1",
        "PATH": f"{directory.venv}/bin:/usr/local/bin:/usr/bin:/bin",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INPUT": "1",
        "PIP_PROGRESS_BAR": "off",
        "PYTHONUNBUFFERED": "1",
        "UV_CACHE_DIR": str(package_cache(context.organization_number)),
        # Cache and environment are separate mounts, so hard links are impossible.
        "UV_LINK_MODE": "copy",
        "UV_NO_PROGRESS": "1",
        "UV_PYTHON_DOWNLOADS": "never",
        "VIRTUAL_ENV": str(directory.venv),
    }
    if project.pip_config_file:
        env["PIP_CONFIG_FILE"] = str(directory.source / project.resolve(project.pip_config_file))
    return sandbox_run.build_policy(
        context,
        cwd=directory.source / project.folder,
        env=env,
        read_only=[uv, _COMPILER, *config.read_only, *([configuration] if config.files else [])],
        writable=[directory.source, directory.venv, package_cache(context.organization_number)],
        python=interpreter,
        # The existing cache does not count towards this build.
        disk_mb=settings.BUILD_DISK_MB + _cache_size_mb(context),
        egress=networks.build_egress(config.urls, config.indexes),
    )


def _install_commands(
    context: BuildContext, project: ProjectConfig, uv: str, indexes: Sequence[sandbox.LocalIndex]
) -> list[list[str]]:
    """Return the install commands: the lock file, if any, then the rest in one resolution."""
    commands = []
    if project.source is not None:
        root = str(context.directory.source / project.source.root)
        package = ["--package", project.source.package] if project.source.package else []
        commands.append(
            [uv, "sync", "--active", "--frozen", "--no-dev", "--project", root, *package]
        )
        if indexes:
            # The lock file has the addresses of the indexes themselves.
            replace = [str(context.directory.python), "-I", "-S", "-c", _REPLACE, f"{root}/uv.lock"]
            inside = [address for index in indexes for address in (index.origin, index.url)]
            commands = [[*replace, *inside], *commands, [*replace, *reversed(inside)]]
    arguments = [*_requirement_arguments(context, project), *GRAPH_HOST_REQUIREMENTS]
    return [*commands, [*_install_command(context, project, uv), *arguments]]


_REPLACE = """
import sys
path, *addresses = sys.argv[1:]
with open(path, encoding="utf-8", newline="") as file:
    text = file.read()
for before, after in zip(addresses[::2], addresses[1::2]):
    text = text.replace(before + "/", after + "/")
with open(path, "w", encoding="utf-8", newline="") as file:
    file.write(text)
"""


def _install_command(context: BuildContext, project: ProjectConfig, uv: str) -> list[str]:
    if project.installer == "pip":
        return [str(context.directory.python), "-m", "pip", "install"]
    return [uv, "pip", "install", "--python", str(context.directory.python)]


def _requirement_arguments(context: BuildContext, project: ProjectConfig) -> list[str]:
    """Return the installer's arguments; local projects are installed in editable mode."""
    arguments: list[str] = []
    for folder in project.folders:
        path = project.resolve(folder)
        full = str(context.directory.source / path)
        if any(
            context.directory.file_type(posixpath.join(path, name)) in ("file", "link")
            for name in _PACKAGING_FILES
        ):
            arguments += ["--editable", full]
        elif context.directory.file_type(posixpath.join(path, "requirements.txt")) in (
            "file",
            "link",
        ):
            arguments += ["--requirement", f"{full}/requirements.txt"]
        # Other folders need no installation: the graph host has them on sys.path.
    for file in project.requirement_files:
        arguments += ["--requirement", str(context.directory.source / project.resolve(file))]
    return [*arguments, *project.packages]
