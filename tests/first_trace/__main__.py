"""Measure the seconds from `/start` to the first trace of three public repositories.

`python -m tests.first_trace` starts an installation, opens `/start` as its first user, and does in
each repository what the prompt there says: from the page to the trace on the page. `--mirrors`
names a folder with copies of the repositories, `owner+name/repo`, for a machine without access to
GitHub. Exits with status 1 if a trace does not come or takes longer than the target.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path

import httpx

from tests.first_trace.model_server import model_server
from tests.first_trace.recipes import RECIPES, Recipe
from tests.installation import Installation

TARGET_SECONDS = 120
_ARRIVAL_SECONDS = 60
_STAGES = ("page", "clone", "install", "change", "run", "check", "screen")
_VARIABLE = re.compile(r"(LANGSMITH_\w+)=(\S+?)(?=[ ,]|$)", re.MULTILINE)


@dataclass
class Journey:
    """One repository, with the seconds of each stage."""

    recipe: Recipe
    seconds: dict[str, float] = field(default_factory=dict)
    trace: str = ""

    @property
    def total(self) -> float:
        return sum(self.seconds.values())


class Person:
    """A signed-in user who copies the prompt from the page."""

    def __init__(self, url: str, email: str, password: str) -> None:
        self.client = httpx.Client(base_url=url, follow_redirects=True, timeout=60)
        token = self._token(self.client.get("/sign-in").text)
        form = {"email": email, "password": password, "csrfmiddlewaretoken": token}
        page = self.client.post("/sign-in", data=form, headers={"Referer": f"{url}/sign-in"})
        self.start_url = str(page.url).rpartition("/")[0] + "/start"

    def copy_prompt(self, project: str) -> str:
        """Open the page and return its prompt with the key that the first Copy makes."""
        page = self.client.get(self.start_url, params={"project": project})
        page.raise_for_status()
        headers = {
            "Accept": "application/json",
            "Referer": self.start_url,
            "X-CSRFToken": self._token(page.text),
        }
        response = self.client.post(self.start_url, data={"purpose": "trace"}, headers=headers)
        response.raise_for_status()
        prompt = re.search(r'id="snippet-agent"[^>]*>(.*?)</pre>', page.text, re.DOTALL)
        if prompt is None:
            raise SystemExit("/start has no prompt.")
        text = unescape(re.sub(r"<[^<>]+>", "", prompt[1]))
        return text.replace("<your key>", response.json()["key"])

    def read_trace(self, project: str) -> str:
        """Return the title of the project's newest trace as its page shows it."""
        base = self.start_url.removesuffix("/start")
        projects = self.client.get(f"{base}/projects", params={"q": project}).text
        path = re.search(rf'href="([^"]+/projects/p/[^"]+)"[^>]*>\s*{re.escape(project)}', projects)
        rows = self.client.get(path[1]).text if path else ""
        row = re.search(r'class="row-link"[^>]*href="([^"]+)"|href="([^"]+/r/[^"]+)"', rows)
        if row is None:
            raise SystemExit(f"The list of {project} has no trace.")
        page = self.client.get(row[1] or row[2])
        page.raise_for_status()
        title = re.search(r"<h1[^>]*>(.*?)</h1>", page.text, re.DOTALL)
        return unescape(title[1]).strip() if title else ""

    @staticmethod
    def _token(page: str) -> str:
        match = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
        return match[1] if match else ""


def travel(person: Person, recipe: Recipe, folder: Path, source: str, model_url: str) -> Journey:
    """Do what the prompt says in a clone of the repository."""
    journey = Journey(recipe)
    begin = time.monotonic()

    def end(stage: str) -> None:
        nonlocal begin
        now = time.monotonic()
        journey.seconds[stage] = now - begin
        begin = now

    project = f"first-trace-{recipe.repository.rpartition('/')[2]}"
    prompt = person.copy_prompt(project)
    end("page")
    subprocess.run(["git", "clone", "-q", "--depth=1", source, str(folder)], check=True)
    end("clone")
    tools = _install(recipe, folder)
    end("install")
    variables = dict(_VARIABLE.findall(prompt))
    env_file = folder / recipe.folder / ".env"
    env_file.write_text("".join(f"{name}={value}\n" for name, value in variables.items()))
    subprocess.run(["git", "check-ignore", "-q", str(env_file)], cwd=folder, check=True)
    for edit in recipe.edits:
        file = folder / edit.path
        text = file.read_text()
        if text.count(edit.old) != 1:
            raise SystemExit(f"{recipe.repository}: {edit.path} has changed.")
        file.write_text(text.replace(edit.old, edit.new))
    end("change")
    own = {"OPENAI_API_KEY": "unused", "OPENAI_BASE_URL": model_url, **recipe.variables}
    _run(recipe.run, folder / recipe.folder, tools, variables | own)
    end("run")
    check = re.search(r"Check: (curl .+?/sessions) must show", prompt)
    if check is None:
        raise SystemExit("The prompt has no check.")
    _wait_for_run(check[1])
    end("check")
    journey.trace = person.read_trace(project)
    end("screen")
    return journey


def _install(recipe: Recipe, folder: Path) -> Path:
    """Run the commands in an environment of the checkout; return the folder of its programs."""
    venv = folder / ".venv-first-trace"
    if any(command[0] == "python" for command in recipe.install):
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    for command in recipe.install:
        _run(command, folder, venv / "bin", {})
    return venv / "bin"


def _run(command: object, folder: Path, tools: Path, variables: dict[str, str]) -> None:
    words = [str(word) for word in command]  # type: ignore[attr-defined]
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("LANGSMITH_", "LANGCHAIN_", "OPENAI_", "PYTHONPATH"))
    }
    path = f"{tools}{os.pathsep}{inherited.get('PATH', '')}"
    environment = {**inherited, "PATH": path, **variables}
    program = shutil.which(words[0], path=path) or words[0]
    result = subprocess.run(
        [program, *words[1:]],
        check=False,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    if result.returncode:
        raise SystemExit(f"{' '.join(words)[:80]} failed:\n{result.stderr[-3000:]}")


def _wait_for_run(command: str) -> None:
    """Execute the prompt's check until the project has a run."""
    end = time.monotonic() + _ARRIVAL_SECONDS
    while time.monotonic() < end:
        output = subprocess.run(  # the command of the prompt, as an agent would execute it
            command, shell=True, capture_output=True, text=True, check=True
        ).stdout
        if re.search(r'"run_count":\s*[1-9]', output):
            return
        time.sleep(0.5)
    raise SystemExit("The check of the prompt never showed a run.")


def report(journeys: list[Journey]) -> str:
    lines = [f"{'seconds':28}" + "".join(f"{stage:>9}" for stage in (*_STAGES, "all"))]
    for journey in journeys:
        figures = [*(journey.seconds[stage] for stage in _STAGES), journey.total]
        lines.append(
            f"{journey.recipe.name:28}"
            + "".join(f"{figure:9.1f}" for figure in figures)
            + f"  {journey.trace}"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="first_trace", description=__doc__)
    parser.add_argument("--mirrors", type=Path, help="folder with copies of the repositories")
    parser.add_argument("--only", help="part of the name of a repository")
    options = parser.parse_args()
    recipes = [recipe for recipe in RECIPES if (options.only or "") in recipe.repository]
    with tempfile.TemporaryDirectory(prefix="first-trace-") as temporary, model_server() as model:
        folder = Path(temporary)
        installation = Installation(folder / "data", SAMPLE_AGENT="false", WARM_GRAPH_HOSTS="0")
        installation.start()
        try:
            installation.wait_until_ready()
            password = (folder / "data/secrets/admin_password").read_text().strip()
            person = Person(installation.url, "admin@localhost", password)
            journeys = []
            for number, recipe in enumerate(recipes):
                source = f"https://github.com/{recipe.repository}"
                if options.mirrors:
                    copy = options.mirrors / recipe.repository.replace("/", "+") / "repo"
                    source = copy.resolve().as_uri()
                journeys.append(travel(person, recipe, folder / f"clone-{number}", source, model))
                print(report(journeys[-1:]), flush=True)
        finally:
            installation.stop()
    print(report(journeys))
    return int(any(journey.total > TARGET_SECONDS for journey in journeys))


if __name__ == "__main__":
    sys.exit(main())
