"""A build step installs a repository's dependencies, whose own build code is as hostile."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from apps.deployments.sandbox import (
    Bind,
    HostAccess,
    installer_access,
    prepare_dir,
    spawn,
)

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
    with zipfile.ZipFile(os.path.join(folder, "hostile-1-py3-none-any.whl"), "w") as wheel:
        wheel.writestr("hostile.py", f"FOUND = {dict(attempts())!r}")
        info = "hostile-1.dist-info/"
        wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\\nName: hostile\\nVersion: 1\\n")
        kind = "Root-Is-Purelib: true\\nTag: py3-none-any\\n"
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\\n" + kind)
        wheel.writestr(info + "RECORD", "")
    return "hostile-1-py3-none-any.whl"
"""


@pytest.fixture
def builder(world):
    """A policy for building: source read-only, its own build folder and cache writable."""
    uv_binary = Path(uv.find_uv_bin()).resolve()
    build = prepare_dir(world.own.parent / "build", uid=world.uid)
    cache = prepare_dir(world.own.parent / "cache", uid=world.uid)
    access = installer_access()
    return world.policy(
        cwd=build,
        read_only=(world.own, Bind(uv_binary, Path("/opt/uv")), *access.read_only),
        writable=(build, cache),
        env={"UV_CACHE_DIR": str(cache), "UV_LINK_MODE": "copy", **access.env},
    )


def run(policy, *command, timeout=90):
    process = spawn(policy, command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return finish(process, timeout)


def test_malicious_build_backend_installs_but_reads_nothing(world, builder, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "postgres://secret")
    secrets = [str(world.data / "secret"), str(world.other / "agent.py")]
    (world.own / "backend.py").write_text(
        f"SECRETS = {secrets!r}\nSOURCE = {str(world.own)!r}\n{BACKEND}"
    )
    (world.own / "pyproject.toml").write_text(
        '[project]\nname = "hostile"\nversion = "1"\n'
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    prepare_dir(world.own, uid=world.uid)

    made = run(builder, "/opt/uv", "venv", "--quiet", "--python", PYTHON, "venv")
    installed = run(
        builder,
        *["/opt/uv", "pip", "install", "--quiet", "--offline", "--python", "venv/bin/python"],
        str(world.own),
    )
    venv = builder.cwd / "venv"
    agent = replace(builder, cwd=world.own, read_only=(world.own, venv), writable=(), env={})
    seen = run(agent, str(venv / "bin/python"), "-c", "import hostile; print(hostile.FOUND)")

    assert (made.output, made.code) == ("", 0)
    assert (installed.output, installed.code) == ("", 0)
    assert eval(seen.output) == {
        secrets[0]: "FileNotFoundError",
        secrets[1]: "FileNotFoundError",
        "/proc/1/environ": "read ",
        "environment": "",
        "source": "OSError",
    }


def test_a_finished_venv_is_read_only_to_the_agent(world, builder):
    run(builder, "/opt/uv", "venv", "--quiet", "--python", PYTHON, "venv")
    venv = builder.cwd / "venv"
    agent = replace(builder, read_only=(world.own, venv), writable=(), env={}, cwd=world.own)

    outcome = run(
        agent, str(venv / "bin/python"), "-c", "import sys; open(sys.prefix + '/pyvenv.cfg', 'a')"
    )

    assert outcome.output.endswith(f"Read-only file system: '{venv}/pyvenv.cfg'")


def test_a_build_cannot_choose_what_the_next_sandbox_sees(world, builder):
    run(builder, "/opt/uv", "venv", "--quiet", "--python", PYTHON, "venv")
    # As a hostile build would: another home of Python, and links in place of folders.
    venv = builder.cwd / "venv"
    config = venv / "pyvenv.cfg"
    config.write_text(f"home = {world.data}\n")
    (venv / "lib").rename(venv / "lib-before")
    (venv / "lib").symlink_to(world.data)
    agent = replace(builder, read_only=(world.own, venv), writable=(), env={}, cwd=world.own)

    outcome = run(
        agent, PYTHON, "-I", "-S", "-c", "import sys; open(sys.argv[1] + '/lib/secret')", str(venv)
    )

    assert "FileNotFoundError" in outcome.output


def test_an_installers_configuration_brings_its_local_index_and_nothing_else(tmp_path):
    home, index = tmp_path / "home", tmp_path / "index"
    for folder in (home / ".config/uv", index / "wheels", home / ".ssh"):
        folder.mkdir(parents=True)
    (home / ".config/uv/uv.toml").write_text(f'find-links = ["{index}/wheels"]')
    bundle = tmp_path / "bundle.pem"
    bundle.write_text("")

    access = installer_access(
        {
            "HOME": str(home),
            "SSL_CERT_FILE": str(bundle),
            "PIP_INDEX_URL": "https://packages.example/simple",
            "UV_PUBLISH_TOKEN": "secret",
            "DATABASE_URL": "postgres://secret",
        }
    )

    assert access == HostAccess(
        env={"SSL_CERT_FILE": str(bundle), "PIP_INDEX_URL": "https://packages.example/simple"},
        read_only=access.read_only,
    )
    inside_home = Path("/tmp/.config/uv")
    own = {bind for bind in access.read_only if bind.source.is_relative_to(tmp_path)}
    assert own == {
        Bind(home / ".config/uv", inside_home),
        Bind(index / "wheels", index / "wheels"),
        Bind(bundle, bundle),
    }
