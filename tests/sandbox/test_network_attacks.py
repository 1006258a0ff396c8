"""A malicious agent reaches no stand-in of a private service, in any isolation mode."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

import pytest

from config.env import BASE_DIR

ORDINARY_UID = 12_345
ROLES = ("agent", "build")
ATTEMPTS = 63
SYSTEM_PYTHON = Path("/usr/bin/python3")


def run_program(command: list[str], **variables: str) -> Any:
    """Run a program of attacks as `python -m` and return the JSON of its last line.

    Its temporary files are in a folder that every user may enter, and that is removed with it.
    """
    with tempfile.TemporaryDirectory(prefix="attacks-") as folder:
        Path(folder).chmod(0o1777)
        completed = subprocess.run(
            command,
            cwd=BASE_DIR,
            env={
                "PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "PYTHONPATH": str(BASE_DIR),
                "PYTHONDONTWRITEBYTECODE": "1",
                "TMPDIR": folder,
                **variables,
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        assert completed.returncode == 0, completed.stderr
        assert list(Path(folder).iterdir()) == []
    return json.loads(completed.stdout.splitlines()[-1])


def run_attacks(python: Path, *arguments: str) -> dict:
    module = "tests.sandbox.network_attacks"
    return run_program(["unshare", "--net", str(python), "-m", module, *arguments])


def check(report: dict, modes: set[str], record_property) -> None:
    assert report["reachable"]  # from outside of the sandbox
    assert report["reached"] == {}  # by the agent or its proxy
    assert set(report["modes"]) == {f"{mode}, {role}" for mode in modes for role in ROLES}
    for mode, results in report["modes"].items():
        reached = {attempt for attempt, result in results.items() if result == "reached"}
        record_property(mode, f"{len(results) - len(reached)} of {len(results)} refused")
        assert reached == set(), mode
        assert len(results) == ATTEMPTS, mode


pytestmark = [
    pytest.mark.skipif(
        os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("unshare"),
        reason="the stand-ins need root, ip and unshare",
    ),
]


def test_agents_of_a_root_platform_reach_no_private_service(record_property):
    report = run_attacks(Path(sys.executable))

    check(report, {"root, bubblewrap", "root, landlock", "root, none"}, record_property)


def is_usable_by_others() -> bool:
    if not SYSTEM_PYTHON.exists():
        return False
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    script = "import os, sys; os.listdir(sys.argv[1]); print('%d.%d' % sys.version_info[:2])"
    command = [str(SYSTEM_PYTHON), "-c", script, sysconfig.get_path("purelib")]
    try:
        answer = subprocess.run(
            command, cwd="/", user=ORDINARY_UID, capture_output=True, text=True, check=False
        )
    except OSError:
        return False
    return answer.stdout.strip() == version


@pytest.mark.skipif(
    os.geteuid() != 0 or not is_usable_by_others(),
    reason="another user cannot enter this folder, or the system has another Python",
)
def test_agents_of_an_ordinary_users_platform_reach_no_private_service(record_property):
    with tempfile.TemporaryDirectory(prefix="ordinary-user-") as folder:
        report = run_attacks(make_environment(Path(folder)), str(ORDINARY_UID))

    check(report, {"ordinary user, bubblewrap", "ordinary user, none"}, record_property)


def make_environment(folder: Path) -> Path:
    """Make an environment of the system's Python, with this one's packages; return its Python."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / "lib" / version / "site-packages"
    packages.mkdir(parents=True)
    (folder / "bin").mkdir()
    (folder / "bin/python").symlink_to(SYSTEM_PYTHON)
    (folder / "pyvenv.cfg").write_text(f"home = {SYSTEM_PYTHON.parent}\n")
    (packages / "packages.pth").write_text(sysconfig.get_path("purelib"))
    folder.chmod(0o755)
    return folder / "bin/python"
