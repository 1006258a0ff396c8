"""Builds of real repositories with real git, uv, sandbox and graph host."""

import json
import os
from pathlib import Path

import pytest

from apps.deployments import services
from apps.deployments.build_dirs import RevisionDir
from apps.deployments.builds import build_context as build_contexts
from apps.deployments.builds.build import build
from apps.deployments.models import Deployment, LogLine, RevisionGraph
from tests.deployments.repositories import CONFIG, GRAPH, WORKING, Repository
from tests.factories.deployments import DeploymentFactory
from tests.factories.organizations import WorkspaceFactory
from tests.gate import run_folder

pytestmark = [pytest.mark.integration, pytest.mark.django_db]

# Fixed, so that the builds of the whole test run share one cache of packages.
ORGANIZATION_NUMBER = 4242
SLEEPER = "import time; time.sleep(600)"
PYPROJECT = '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'


@pytest.fixture(autouse=True)
def data_folder(settings):
    settings.DATA_DIR = Path(os.environ[run_folder.FOLDER], "builds").resolve()
    settings.DATA_DIR.mkdir(exist_ok=True)
    settings.ALLOW_FILE_GIT = True
    return settings.DATA_DIR


@pytest.fixture
def workspace():
    return WorkspaceFactory(organization__number=ORGANIZATION_NUMBER)


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path / "repository")


@pytest.fixture
def deployment(workspace, repository):
    return DeploymentFactory(workspace=workspace, repo_url=repository.url)


def built(deployment):
    """A new revision after its build."""
    revision = services.create_revision(deployment=Deployment.unscoped.get(pk=deployment.pk))
    build(revision.pk)
    revision.refresh_from_db()
    return revision


def log_of(revision):
    return "\n".join(
        line.message for line in LogLine.unscoped.filter(revision=revision).order_by("pk")
    )


def folder_of(revision):
    return RevisionDir.for_attempt(revision.pk, revision.attempt, ORGANIZATION_NUMBER).folder


def test_agent_is_built_activated_kept_after_a_failure_and_redeployed(deployment, repository):
    commit = repository.commit(WORKING, "Shout at people")

    first = built(deployment)

    assert (first.status, first.failure) == ("DEPLOYED", "")
    assert (first.commit_sha, first.commit_subject) == (commit, "Shout at people")
    assert first.config == CONFIG
    assert [c.status for c in first.status_changes.in_order()][-5:] == [
        "AWAITING_BUILD",
        "BUILDING",
        "AWAITING_DEPLOY",
        "DEPLOYING",
        "DEPLOYED",
    ]
    graph = RevisionGraph.unscoped.get(revision=first)
    assert graph.graph_id == "shout"
    assert list(graph.schemas["input_schema"]["properties"]) == ["text"]
    assert [node["id"] for node in graph.drawing["nodes"]] == ["__start__", "shout", "__end__"]
    deployment.refresh_from_db()
    assert (deployment.status, deployment.active_revision_id) == ("READY", first.pk)
    assert "Deployed: revision" in log_of(first)

    # A broken commit fails, and the first revision goes on serving.
    repository.commit({**WORKING, "langgraph.json": "{"})
    second = built(deployment)

    assert second.status == "BUILD_FAILED"
    assert second.failure.startswith("langgraph.json is not valid JSON: ")
    assert not folder_of(second).exists()
    deployment.refresh_from_db()
    assert deployment.active_revision_id == first.pk

    # The old revision is deployed again from what was built then.
    lines = LogLine.unscoped.filter(revision=first).count()
    services.redeploy(revision=first)
    build(first.pk)

    first.refresh_from_db()
    assert (first.status, first.built_attempt, first.attempt) == ("DEPLOYED", 1, 2)
    again = [
        line.message for line in LogLine.unscoped.filter(revision=first).order_by("pk")[lines:]
    ]
    assert again[0] == "==> Starting the agent"


BROKEN = {
    "no langgraph.json": (
        {"agent.py": GRAPH},
        "There is no file langgraph.json in the repository.",
    ),
    "a graph's file is missing": (
        {"langgraph.json": json.dumps(CONFIG)},
        "`graphs`: shout: there is no file ./agent.py in the repository.",
    ),
    "a key that is not supported": (
        {**WORKING, "langgraph.json": json.dumps({**CONFIG, "encryption": {"path": "./a.py:a"}})},
        "langgraph.json has `encryption`, which is not supported",
    ),
    "a Python that is not there": (
        {**WORKING, "langgraph.json": json.dumps({**CONFIG, "python_version": "3.99"})},
        "This machine has no Python 3.99; the platform itself runs ",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_project_fails_with_a_message_for_its_author(deployment, repository, case):
    files, says = BROKEN[case]
    repository.commit(files)

    revision = built(deployment)

    assert revision.status == "BUILD_FAILED"
    assert revision.failure.startswith(says)
    assert log_of(revision).endswith(revision.failure)
    assert revision.status_changes.in_order().last().detail == revision.failure
    deployment.refresh_from_db()
    assert (deployment.status, deployment.active_revision_id) == ("AWAITING_DATABASE", None)


def test_a_link_to_the_platforms_files_is_not_read(deployment, repository, data_folder):
    (data_folder / "bait").write_text(json.dumps(CONFIG))
    repository.commit({"agent.py": GRAPH})
    (repository.folder / "langgraph.json").symlink_to(data_folder / "bait")
    repository.commit_all()

    revision = built(deployment)

    assert revision.failure.startswith("langgraph.json cannot be read")


def test_hooks_and_filters_of_a_repository_do_not_run(deployment, repository, tmp_path):
    repository.commit(
        {
            "agent.py": GRAPH,
            ".gitattributes": "*.py filter=evil\n",
            ".gitmodules": ('[submodule "x"]\n\tpath = x\n\turl = ext::sh -c "touch /tmp/evil"\n'),
        }
    )

    revision = built(deployment)

    assert "cannot be cloned" in revision.failure
    assert not Path("/tmp/evil").exists()


def test_a_dependency_that_cannot_be_installed(deployment, repository):
    config = {**CONFIG, "dependencies": [".", "slipway-has-no-such-package==1.0"]}
    repository.commit({**WORKING, "langgraph.json": json.dumps(config)})

    revision = built(deployment)

    assert revision.status == "BUILD_FAILED"
    assert revision.failure.startswith("The dependencies cannot be installed: ")
    assert "slipway-has-no-such-package" in revision.failure


def test_a_graph_that_does_not_import(deployment, repository):
    graphs = {"broken": "./broken.py:graph", "absent": "./agent.py:nothing"}
    repository.commit(
        {
            **WORKING,
            "broken.py": "def helper():\n    import surely_not_there\n\nhelper()\n",
            "langgraph.json": json.dumps({**CONFIG, "graphs": graphs}),
        }
    )

    revision = built(deployment)

    assert revision.status == "BUILD_FAILED"
    assert "No module named 'surely_not_there'" in revision.failure
    assert 'broken.py", line 2, in helper' in revision.failure
    assert "`./agent.py` has no `nothing`. It defines: " in revision.failure


HOSTILE = """
import os, pathlib, socket

found = []

def attempt(what, deed):
    try:
        found.append(f"LEAK {what}: {deed()!r}"[:300])
    except Exception as error:
        found.append(f"refused {what}: {type(error).__name__}")

# Of the folders above its own only the way there is visible.
attempt("data", lambda: sorted(set(os.listdir(DATA)) - {"revisions", "package-cache"})[0])
attempt("other revisions", lambda: os.listdir(DATA + "/revisions")[1])
attempt("other caches", lambda: os.listdir(DATA + "/package-cache")[1])
attempt("bait", lambda: open(DATA + "/bait").read())
attempt("root's home", lambda: os.listdir(os.path.expanduser("~root/.ssh")))
attempt("system write", lambda: pathlib.Path("/usr/evil").write_text("x"))
try:
    pathlib.Path(DATA + "/evil").write_text("this stays in the sandbox's own /tmp")
except OSError:
    pass
attempt("postgres", lambda: socket.socket(socket.AF_UNIX).connect(SOCKETS + "/.s.PGSQL.5432"))
attempt("redis", lambda: socket.socket(socket.AF_UNIX).connect(SOCKETS + "/redis.sock"))
attempt("the builder", lambda: os.kill(BUILDER, 0))
attempt("environment", lambda: {"DATABASE_URL", "REDIS_URL"} & set(os.environ) or 1 / 0)
attempt("environment of others", lambda: [
    p for p in os.listdir("/proc") if p.isdigit()
    and b"DATABASE_URL" in open(f"/proc/{p}/environ", "rb").read()
] or 1 / 0)
attempt("root", lambda: os.setuid(0))
raise SystemExit("REPORT " + " | ".join(found))
"""


def test_malicious_build_step_cannot_access_the_platform(deployment, repository, data_folder):
    from apps.core.instance import Instance

    (data_folder / "bait").write_text("the platform's secret")
    places = {
        "DATA": str(data_folder),
        "SOCKETS": str(Instance(Path(os.environ[run_folder.FOLDER], "services")).socket_dir),
        "BUILDER": os.getpid(),
    }
    header = "".join(f"{name} = {value!r}\n" for name, value in places.items())
    repository.commit({**WORKING, "pyproject.toml": PYPROJECT, "setup.py": header + HOSTILE})

    revision = built(deployment)

    report = next(line for line in log_of(revision).splitlines() if "REPORT " in line)
    assert revision.status == "BUILD_FAILED"
    assert "LEAK" not in report
    assert report.count("refused") == 12
    assert not (data_folder / "evil").exists()


def test_a_build_that_takes_too_long_is_stopped(deployment, repository, settings):
    settings.BUILD_TIMEOUT_SECONDS = 4
    repository.commit({**WORKING, "pyproject.toml": PYPROJECT, "setup.py": SLEEPER})

    revision = built(deployment)

    assert revision.failure == "The build exceeded its time limit of 4 seconds."


def test_an_interrupted_build_stops(deployment, repository, monkeypatch, settings):
    settings.BUILD_TIMEOUT_SECONDS = 120
    monkeypatch.setattr(build_contexts, "_RENEW_SECONDS", 0)
    repository.commit({**WORKING, "pyproject.toml": PYPROJECT, "setup.py": SLEEPER})
    revision = services.create_revision(deployment=deployment)
    tick = build_contexts.BuildContext.tick

    def interrupting(context):
        if "Installing dependencies" in log_of(revision):
            monkeypatch.setattr(build_contexts.BuildContext, "tick", tick)
            services.interrupt_revision(revision=revision)
        tick(context)

    monkeypatch.setattr(build_contexts.BuildContext, "tick", interrupting)
    build(revision.pk)

    revision.refresh_from_db()
    assert revision.status == "INTERRUPTED"
    assert log_of(revision).endswith("The build of this revision was stopped.")
