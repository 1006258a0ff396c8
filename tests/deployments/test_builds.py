"""Builds of real repositories with real git, uv, sandbox and graph host."""

import json
import os
import socket
from pathlib import Path

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.core.instance import Instance
from apps.deployments import services
from apps.deployments.build_dirs import RevisionDir
from apps.deployments.builds import build_context as build_contexts
from apps.deployments.builds.build import build
from apps.deployments.models import Deployment, LogLine, RevisionGraph
from apps.deployments.services import build_turns, progress
from apps.deployments.statuses import RevisionStatus
from tests.deployments.repositories import CONFIG, GRAPH, WORKING
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
def deployment(workspace, repository):
    return DeploymentFactory(workspace=workspace, repo_url=repository.url)


def build_revision(deployment):
    """Create a revision, build it and return it."""
    revision = services.create_revision(deployment=Deployment.unscoped.get(pk=deployment.pk))
    build(revision.pk)
    revision.refresh_from_db()
    return revision


def read_log(revision):
    return "\n".join(
        line.message for line in LogLine.unscoped.filter(revision=revision).order_by("pk")
    )


def revision_folder(revision):
    return RevisionDir.for_attempt(revision.pk, revision.attempt, ORGANIZATION_NUMBER).folder


def test_project_may_be_beside_the_folder_of_its_langgraph_json(deployment, repository):
    """Its graphs and its requirements file are then named by paths that lead out of the folder."""
    config = {"dependencies": ["../requirements.txt"], "graphs": {"shout": "../agent.py:graph"}}
    repository.commit(
        {
            "deploy/langgraph.json": json.dumps(config),
            "requirements.txt": "six",
            "agent.py": f"import helper, six{GRAPH}",
            "helper.py": "",
        }
    )
    Deployment.unscoped.filter(pk=deployment.pk).update(config_path="deploy/langgraph.json")

    revision = build_revision(deployment)

    assert (revision.status, revision.failure) == ("DEPLOYED", "")
    assert " + six==" in read_log(revision)


@pytest.mark.django_db(transaction=True)
def test_agent_is_built_activated_kept_after_a_failure_and_redeployed(
    deployment, repository, monkeypatch
):
    commit = repository.commit(WORKING, "Shout at people")
    logs_at_activation = []
    activate = progress.activate

    def record_then_activate(revision):
        activate(revision)
        transaction.on_commit(lambda: logs_at_activation.append(read_log(revision)))

    monkeypatch.setattr(progress, "activate", record_then_activate)

    first = build_revision(deployment)

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
    compiled = {path.parent.parent.name for path in revision_folder(first).rglob("*.pyc")}
    assert {"source", "langgraph"} <= compiled
    deployment.refresh_from_db()
    assert (deployment.status, deployment.active_revision_id) == ("READY", first.pk)
    # Status and last line are stored together.
    assert logs_at_activation[0].splitlines()[-1] == f"Deployed: revision {first.number} is active."

    # A broken commit fails, and the first revision continues to serve.
    repository.commit({**WORKING, "langgraph.json": "{"})
    second = build_revision(deployment)

    assert second.status == "BUILD_FAILED"
    assert second.failure.startswith("langgraph.json is not valid JSON: ")
    assert not revision_folder(second).exists()
    deployment.refresh_from_db()
    assert deployment.active_revision_id == first.pk

    # The first revision is redeployed from its earlier build.
    line_count = LogLine.unscoped.filter(revision=first).count()
    redeployed_at = timezone.now()
    services.redeploy(revision=first)
    build(first.pk)

    first.refresh_from_db()
    assert (first.status, first.built_attempt, first.attempt) == ("DEPLOYED", 1, 2)
    redeploy_messages = [
        line.message for line in LogLine.unscoped.filter(revision=first).order_by("pk")[line_count:]
    ]
    assert redeploy_messages[0] == "==> Starting the agent"
    assert redeployed_at < first.started_at < first.finished_at
    assert first.shown_status == "DEPLOYED"


def test_flat_library_of_a_monorepo_is_importable_by_its_folder_name(deployment, repository):
    config = {**CONFIG, "dependencies": [".", "../../libs/common"]}
    repository.commit(
        {
            "apps/agent/langgraph.json": json.dumps(config),
            "apps/agent/agent.py": f"from common.helpers import PREFIX\n{GRAPH}",
            "libs/common/__init__.py": "",
            "libs/common/helpers.py": "PREFIX = '>'",
        }
    )
    Deployment.unscoped.update(config_path="apps/agent/langgraph.json")

    revision = build_revision(deployment)

    assert (revision.status, revision.failure) == ("DEPLOYED", "")


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
    files, message = BROKEN[case]
    repository.commit(files)

    revision = build_revision(deployment)

    assert revision.status == "BUILD_FAILED"
    assert revision.failure.startswith(message)
    assert read_log(revision).endswith(revision.failure)
    assert revision.status_changes.in_order().last().detail == revision.failure
    deployment.refresh_from_db()
    assert (deployment.status, deployment.active_revision_id) == ("AWAITING_DATABASE", None)


def test_a_link_to_the_platforms_files_is_not_read(deployment, repository, data_folder):
    (data_folder / "bait").write_text(json.dumps(CONFIG))
    repository.commit({"agent.py": GRAPH})
    (repository.folder / "langgraph.json").symlink_to(data_folder / "bait")
    repository.commit_all()

    revision = build_revision(deployment)

    assert revision.failure.startswith("langgraph.json cannot be read")


def test_hooks_and_filters_of_a_repository_do_not_run(deployment, repository, tmp_path):
    repository.commit(
        {
            "agent.py": GRAPH,
            ".gitattributes": "*.py filter=evil\n",
            ".gitmodules": ('[submodule "x"]\n\tpath = x\n\turl = ext::sh -c "touch /tmp/evil"\n'),
        }
    )

    revision = build_revision(deployment)

    assert "cannot be cloned" in revision.failure
    assert not Path("/tmp/evil").exists()


def test_a_dependency_that_cannot_be_installed_fails_the_build(deployment, repository):
    config = {**CONFIG, "dependencies": [".", "slipway-has-no-such-package==1.0"]}
    repository.commit({**WORKING, "langgraph.json": json.dumps(config)})

    revision = build_revision(deployment)

    assert revision.status == "BUILD_FAILED"
    assert revision.failure.startswith("The dependencies cannot be installed: ")
    assert "slipway-has-no-such-package" in revision.failure


def test_the_oldest_supported_langgraph_builds(deployment, repository):
    config = {**CONFIG, "dependencies": [".", "langgraph==0.4.10"]}
    repository.commit({**WORKING, "langgraph.json": json.dumps(config)})

    revision = build_revision(deployment)

    assert (revision.failure, revision.status) == ("", "DEPLOYED")


def test_a_langgraph_that_is_too_old_fails_the_build_by_name(deployment, repository):
    config = {**CONFIG, "dependencies": [".", "langgraph<0.3"]}
    repository.commit({**WORKING, "langgraph.json": json.dumps(config)})

    revision = build_revision(deployment)

    assert revision.failure.startswith(
        "The dependencies cannot be installed: no versions satisfy both the project's requirements"
        " and langgraph>=0.4.10, the minimum of this platform and of LangGraph's own server.\n"
    )


def test_a_graph_that_cannot_be_imported_fails_the_build(deployment, repository):
    graphs = {"broken": "./broken.py:graph", "absent": "./agent.py:nothing"}
    repository.commit(
        {
            **WORKING,
            "broken.py": "def helper():\n    import surely_not_there\n\nhelper()\n",
            "langgraph.json": json.dumps({**CONFIG, "graphs": graphs}),
        }
    )

    revision = build_revision(deployment)

    assert revision.status == "BUILD_FAILED"
    assert "No module named 'surely_not_there'" in revision.failure
    assert 'broken.py", line 2, in helper' in revision.failure
    assert "`./agent.py` has no `nothing`. It defines: " in revision.failure


FACTORIES = """
import socket, time
from agent import graph as shout

def by_user(config):
    return {"ada": shout}[config["configurable"]["user"]]

def connected(config):
    socket.create_connection(("127.0.0.1", 9), 2)
    return shout

def exits(config):
    raise SystemExit("no settings")

def hangs(config):
    time.sleep(600)
"""


def test_factories_that_fail_without_their_environment_are_deployed(
    deployment, repository, settings
):
    settings.GRAPH_IMPORT_TIMEOUT_SECONDS = 30
    factories = ("hangs", "by_user", "connected", "exits")
    graphs = {name: f"./factories.py:{name}" for name in factories} | CONFIG["graphs"]
    config = json.dumps({**CONFIG, "graphs": graphs})
    repository.commit({**WORKING, "factories.py": FACTORIES, "langgraph.json": config})

    revision = build_revision(deployment)

    assert (revision.status, revision.failure) == ("DEPLOYED", "")
    lines = LogLine.unscoped.filter(revision=revision, level="WARNING").order_by("pk")
    prefix = "its schemas and drawing are made on request, because the build could not:"
    messages = [line.message.strip() for line in lines]
    assert messages[0].startswith(f"hangs: {prefix} its creation exceeded its time limit of 30 s")
    assert messages[1] == f"by_user: {prefix} KeyError: 'user'"
    assert messages[2].startswith(f"connected: {prefix} ")
    assert messages[3:] == [f"exits: {prefix} SystemExit: no settings"]
    rows = RevisionGraph.unscoped.filter(revision=revision)
    assert {row.graph_id: bool(row.schemas) for row in rows} == {
        **dict.fromkeys(factories, False),
        "shout": True,
    }


MALICIOUS_SETUP = """
import os, pathlib, socket, urllib.request

results = []

def attempt(target, action):
    try:
        results.append(f"LEAK {target}: {action()!r}"[:300])
    except Exception as error:
        results.append(f"refused {target}: {type(error).__name__}")

# Of the parent folders only the path to its own folder is visible.
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
attempt("loopback", lambda: socket.create_connection(("127.0.0.1", PORT), 5))
attempt("loopback IPv6", lambda: socket.create_connection(("::1", PORT), 5))
attempt("private range", lambda: socket.create_connection(("10.0.0.1", 80), 5))
attempt("metadata", lambda: socket.create_connection(("169.254.169.254", 80), 5))
attempt("abstract socket", lambda: socket.socket(socket.AF_UNIX).connect("\\0" + ABSTRACT))
attempt("raw socket", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
for host in ("127.0.0.1", "2130706433", "[::ffff:127.0.0.1]", "169.254.169.254", "10.0.0.1"):
    url = f"http://{host}:{PORT}/"
    attempt("proxy " + host, lambda: urllib.request.urlopen(url, timeout=20))
raise SystemExit("REPORT " + " | ".join(results))
"""


def test_malicious_build_step_cannot_access_the_platform(deployment, repository, data_folder):
    (data_folder / "bait").write_text("the platform's secret")
    variables = {
        "DATA": str(data_folder),
        "SOCKETS": str(Instance(Path(os.environ[run_folder.FOLDER], "services")).socket_dir),
        "BUILDER": os.getpid(),
        "ABSTRACT": f"slipway-build-{os.getpid()}",
    }
    service = socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind("\0" + variables["ABSTRACT"])
    abstract.listen()
    variables["PORT"] = service.getsockname()[1]
    header = "".join(f"{name} = {value!r}\n" for name, value in variables.items())
    repository.commit(
        {**WORKING, "pyproject.toml": PYPROJECT, "setup.py": header + MALICIOUS_SETUP}
    )

    with service, abstract:
        revision = build_revision(deployment)

    report = next(line for line in read_log(revision).splitlines() if "REPORT " in line)
    assert revision.status == "BUILD_FAILED"
    assert "LEAK" not in report
    assert report.count("refused") == 23
    assert not (data_folder / "evil").exists()


def test_a_build_past_its_time_limit_is_stopped(deployment, repository, settings):
    settings.BUILD_TIMEOUT_SECONDS = 4
    repository.commit({**WORKING, "pyproject.toml": PYPROJECT, "setup.py": SLEEPER})

    revision = build_revision(deployment)

    assert revision.failure == "The build exceeded its time limit of 4 seconds."


@pytest.mark.parametrize(
    "blocking",
    ["threading.Event().wait()", pytest.param("time.sleep(600)", marks=pytest.mark.slow)],
)
def test_an_import_past_its_time_limit_is_stopped_where_it_hangs(
    deployment, repository, settings, blocking
):
    settings.GRAPH_IMPORT_TIMEOUT_SECONDS = 40
    module = f"import threading, time\n\n\ndef wait():\n    {blocking}\n\n\nwait()\n"
    repository.commit({**WORKING, "agent.py": module})

    revision = build_revision(deployment)

    assert revision.failure.startswith("The import of the graphs exceeded its time limit of 40 s")
    assert 'agent.py", line 5 in wait' in read_log(revision)


@pytest.mark.django_db(transaction=True)
def test_a_build_whose_deployment_is_deleted_stops(
    deployment, repository, monkeypatch, caplog, data_folder
):
    repository.commit(WORKING)
    woken = []
    monkeypatch.setattr(build_turns, "wake_builder", lambda: woken.append(True))
    tick = build_contexts.BuildContext.tick

    def delete_then_tick(context):
        row = Deployment.unscoped.filter(pk=deployment.pk)
        if row.exists():
            row.update(deleted_at=timezone.now())
            services.purge_deployment(deployment.pk)
            context.log.write("A line after the deletion.")
            context.log.flush()
        tick(context)

    monkeypatch.setattr(build_contexts.BuildContext, "tick", delete_then_tick)
    revision = services.create_revision(deployment=deployment)

    build(revision.pk)

    assert woken == [True]
    assert "failed" not in caplog.text
    assert not (data_folder / "revisions" / str(revision.pk)).exists()


@pytest.mark.parametrize("error", [IntegrityError, KeyError])
def test_an_error_of_the_platform_fails_the_build_at_once(
    deployment, repository, monkeypatch, caplog, error
):
    repository.commit(WORKING)

    def fail(_context):
        raise error

    monkeypatch.setattr(build_contexts.BuildContext, "tick", fail)

    revision = build_revision(deployment)

    assert revision.status == RevisionStatus.BUILD_FAILED
    assert revision.failure.startswith("Internal error of the platform.")
    assert f"build of revision {revision.pk} failed" in caplog.text


def test_an_interrupted_build_stops(deployment, repository, monkeypatch):
    monkeypatch.setattr(build_contexts, "_RENEW_SECONDS", 0)
    repository.commit({**WORKING, "pyproject.toml": PYPROJECT, "setup.py": SLEEPER})
    revision = services.create_revision(deployment=deployment)
    tick = build_contexts.BuildContext.tick

    def interrupt_then_tick(context):
        if "Installing dependencies" in read_log(revision):
            monkeypatch.setattr(build_contexts.BuildContext, "tick", tick)
            services.interrupt_revision(revision=revision)
        tick(context)

    monkeypatch.setattr(build_contexts.BuildContext, "tick", interrupt_then_tick)
    build(revision.pk)

    revision.refresh_from_db()
    assert revision.status == "INTERRUPTED"
    assert read_log(revision).endswith("The build of this revision was stopped.")
