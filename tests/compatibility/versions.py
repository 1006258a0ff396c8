"""The versions of the public clients, and the folders that they are installed into."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from config.env import BASE_DIR

FOLDER = BASE_DIR / ".tools" / "clients"
_LOCKED = re.compile(r"^([a-z0-9][a-z0-9._-]*)==([^ ;\\]+)([^\\\n]*)", re.MULTILINE)
# These follow the client: newer releases of LangChain's packages refuse older clients, and older
# clients refuse newer releases of `websockets`.
_FREE = re.compile(r"^(lang(smith|graph|chain)|websockets$)")
# Each is the same in every set; the page of the `useStream` tests is made with it.
_REACT = "19.2.8"


@dataclass(frozen=True, kw_only=True)
class ClientVersions:
    """Clients of one time: both Python packages, and the npm packages released with them."""

    name: str
    python: dict[str, str]
    javascript: dict[str, str]

    @property
    def folder(self) -> Path:
        return FOLDER / self.name

    def install(self) -> Path:
        """Install the clients, unless they are there, and return their folder."""
        done = self.folder / "installed.json"
        wanted = json.dumps([self.python, self.javascript])
        if not done.exists() or done.read_text() != wanted:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)
            self._install_python()
            self._install_javascript()
            done.write_text(wanted)
        return self.folder

    def _install_python(self) -> None:
        constraints = self.folder / "constraints.txt"
        constraints.write_text(_other_locked_versions())
        command = [_find("uv"), "pip", "install", "--quiet", "--target", self.folder / "python"]
        packages = [f"{name}=={version}" for name, version in self.python.items()]
        subprocess.run([*command, "--constraint", constraints, *packages, "langgraph"], check=True)

    def _install_javascript(self) -> None:
        versions = {**self.javascript, "react": _REACT, "react-dom": _REACT}
        (self.folder / "package.json").write_text('{"private": true, "type": "module"}')
        command = ["npm", "install", "--silent", "--ignore-scripts", "--no-audit", "--no-fund"]
        packages = [f"{name}@{version}" for name, version in versions.items()]
        subprocess.run([*command, *packages], check=True, cwd=self.folder, env=_node_environment())


def _other_locked_versions() -> str:
    """Return the versions of the lock, without the hashes, of all but the clients' packages."""
    lock = (BASE_DIR / "requirements-dev.lock").read_text()
    return "".join(
        f"{name}=={version}{marker.rstrip()}\n"
        for name, version, marker in _LOCKED.findall(lock)
        if not _FREE.match(name)
    )


def _find(program: str) -> str:
    places = os.pathsep.join(
        [str(BASE_DIR / ".venv/bin"), str(BASE_DIR / ".tools/bin"), os.environ["PATH"]]
    )
    path = shutil.which(program, path=places)
    assert path is not None, f"{program} is not installed: make install-dev"
    return path


def _node_environment() -> dict[str, str]:
    return {**os.environ, "PATH": f"{BASE_DIR / '.venv/bin'}{os.pathsep}{os.environ['PATH']}"}


AUGUST = ClientVersions(
    name="2026-08",
    python={"langsmith": "0.11.2", "langgraph-sdk": "0.4.3"},
    javascript={"langsmith": "0.8.12", "@langchain/langgraph-sdk": "1.9.31"},
)
NOVEMBER = ClientVersions(
    name="2026-11",
    python={"langsmith": "0.15.0", "langgraph-sdk": "0.4.14"},
    javascript={"langsmith": "0.12.0", "@langchain/langgraph-sdk": "1.15.0"},
)
SETS = (NOVEMBER, AUGUST)
