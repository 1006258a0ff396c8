"""Small Git repositories that tests create and builds clone."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

# Resolved before a test removes git from the path.
GIT = shutil.which("git") or "git"

GRAPH = """
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict


class State(TypedDict):
    text: str


def shout(state: State) -> State:
    return {"text": state["text"].upper()}


graph = (
    StateGraph(State)
    .add_node(shout)
    .add_edge(START, "shout")
    .add_edge("shout", END)
    .compile()
)
"""
CONFIG = {"dependencies": ["."], "graphs": {"shout": "./agent.py:graph"}}
WORKING = {"langgraph.json": json.dumps(CONFIG), "agent.py": GRAPH}


class Repository:
    """A repository; each commit is given as its files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = folder.as_uri()
        folder.mkdir()
        # Builds run as another user, which must be able to read the folder.
        folder.chmod(0o755)
        self.git("init", "--quiet", "--initial-branch", "main")

    def commit(self, files: dict[str, str], subject: str = "A commit") -> str:
        """Replace all files and return the commit's id."""
        for path in self.git("ls-files").split():
            (self.folder / path).unlink()
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return self.commit_all(subject)

    def commit_all(self, subject: str = "A commit") -> str:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", subject)
        return self.git("rev-parse", "HEAD").strip()

    def git(self, *arguments: str) -> str:
        identity = ["-c", "user.name=Ann", "-c", "user.email=ann@example.com"]
        argv = [GIT, *identity, "-c", "commit.gpgsign=false", "-C", str(self.folder), *arguments]
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout
