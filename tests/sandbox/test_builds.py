"""Builds install dependencies whose build code may be malicious."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from apps.deployments.builds.installer import read_config
from apps.deployments.sandbox import Bind, prepare_dir, spawn

from .conftest import PYTHON, finish

uv = pytest.importorskip("uv")

BACKEND = """
import os, zipfile

def attempts():
    for path in SECRETS + ["/proc/1/environ"]:
        try:
            with open(path) as file:
                yield path, "read " + file.read()
        except OSError as error:
            yield path, type(error).__name__
    yield "environment", ",".join(sorted(name for name in os.environ if "DATABASE" in name))
    try:
        open(os.path.join(SOURCE, "backend.py"), "a")
    except OSError as error:
        yield "source", type(error).__name__

def build_wheel(folder, config_settings=None, metadata_directory=None):
    with zipfile.ZipFile(os.path.join(folder, "malicious-1-py3-none-any.whl"), "w") as wheel:
        wheel.writestr("malicious.py", f"FOUND = {dict(attempts())!r}")
        info = "malicious-1.dist-info/"
        wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\\nName: malicious\\nVersion: 1\\n")
        kind = "Root-Is-Purelib: true\\nTag: py3-none-any\\n"
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\\n" + kind)
        wheel.writestr(info + "RECORD", "")
    return "malicious-1-py3-none-any.whl"
"""


@pytest.fixture
def builder(folders):
    """A policy for building: source read-only, its own build folder and cache writable."""
    uv_binary = Path(uv.find_uv_bin()).resolve()
    build = prepare_dir(folders.own.parent / "build", uid=folders.uid)
    cache = prepare_dir(folders.own.parent / "cache", uid=folders.uid)
    config = read_config(hides_passwords=True)
    return folders.policy(
        cwd=build,
        read_only=(folders.own, Bind(uv_binary, Path("/opt/uv")), *config.read_only),
        writable=(build, cache),
        env={"UV_CACHE_DIR": str(cache), "UV_LINK_MODE": "copy", **config.env},
    )


def run_command(policy, *command, timeout=90):
    process = spawn(policy, command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return finish(process, timeout)


def test_malicious_build_backend_installs_but_reads_nothing(folders, builder, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "postgres://secret")
    secrets = [str(folders.data / "secret"), str(folders.other / "agent.py")]
    (folders.own / "backend.py").write_text(
        f"SECRETS = {secrets!r}\nSOURCE = {str(folders.own)!r}\n{BACKEND}"
    )
    (folders.own / "pyproject.toml").write_text(
        '[project]\nname = "malicious"\nversion = "1"\n'
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    prepare_dir(folders.own, uid=folders.uid)

    venv_result = run_command(builder, "/opt/uv", "venv", "--quiet", "--python", PYTHON, "venv")
    install_result = run_command(
        builder,
        *["/opt/uv", "pip", "install", "--quiet", "--offline", "--python", "venv/bin/python"],
        str(folders.own),
    )
    venv = builder.cwd / "venv"
    agent = replace(builder, cwd=folders.own, read_only=(folders.own, venv), writable=(), env={})
    import_result = run_command(
        agent, str(venv / "bin/python"), "-c", "import malicious; print(malicious.FOUND)"
    )

    assert (venv_result.output, venv_result.code) == ("", 0)
    assert (install_result.output, install_result.code) == ("", 0)
    assert eval(import_result.output) == {
        secrets[0]: "FileNotFoundError",
        secrets[1]: "FileNotFoundError",
        "/proc/1/environ": "read ",
        "environment": "",
        "source": "OSError",
    }


def test_a_finished_venv_is_read_only_for_the_agent(folders, builder):
    run_command(builder, "/opt/uv", "venv", "--quiet", "--python", PYTHON, "venv")
    venv = builder.cwd / "venv"
    agent = replace(builder, read_only=(folders.own, venv), writable=(), env={}, cwd=folders.own)

    result = run_command(
        agent, str(venv / "bin/python"), "-c", "import sys; open(sys.prefix + '/pyvenv.cfg', 'a')"
    )

    assert result.output.endswith(f"Read-only file system: '{venv}/pyvenv.cfg'")


def test_a_build_cannot_change_the_files_of_the_next_sandbox(folders, builder):
    run_command(builder, "/opt/uv", "venv", "--quiet", "--python", PYTHON, "venv")
    # A malicious build changes the home of Python and replaces folders by links.
    venv = builder.cwd / "venv"
    config = venv / "pyvenv.cfg"
    config.write_text(f"home = {folders.data}\n")
    (venv / "lib").rename(venv / "lib-before")
    (venv / "lib").symlink_to(folders.data)
    agent = replace(builder, read_only=(folders.own, venv), writable=(), env={}, cwd=folders.own)

    result = run_command(
        agent, PYTHON, "-I", "-S", "-c", "import sys; open(sys.argv[1] + '/lib/secret')", str(venv)
    )

    assert "FileNotFoundError" in result.output
