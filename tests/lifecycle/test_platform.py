"""Whole installations, started as `make up` does; the fast tests use the `live` platform."""

import json
import os
import re
import signal
import socket
import subprocess
import urllib.request
from functools import partial

import psutil
import psycopg
import pytest

from apps.core.instance import Instance
from config.env import BASE_DIR
from tests.installation import wait_until

PROCESSES = ["web", "worker", "builder", "beat", "redis", "postgres", "fork-server"]


def start(installation):
    installation.start()
    installation.wait_until_output_contains("Slipway is ready")
    return installation


def read_readiness(installation):
    with urllib.request.urlopen(f"{installation.url}/readyz", timeout=60) as answer:
        return json.load(answer)


def greet_agent(installation, key):
    """Send a greeting to the sample agent over HTTP and return its answer."""
    request = urllib.request.Request(
        f"{installation.url}/agents/sample-agent/runs/wait",
        data=json.dumps(
            {
                "assistant_id": "agent",
                "input": {"messages": [{"role": "user", "content": "Hello"}]},
            }
        ).encode(),
        headers={"X-Api-Key": key, "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def test_readiness_lists_every_part_as_ok(live):
    assert read_readiness(live.installation) == {
        "ready": True,
        "parts": dict.fromkeys(["database", "redis", "worker", "builder", "beat"], "ok"),
    }


def test_a_management_command_finds_the_running_installation(live):
    facts = json.loads(
        live.manage(
            "bootstrap", "--organization", "Slipway", "--email", "admin@localhost", "--json"
        ).stdout
    )

    assert facts["organization_id"] == live.organization_id
    assert facts["api_key"] == live.api_key
    assert facts["api_url"] == f"{live.url}/api/v1"


@pytest.mark.slow
def test_make_up_prints_credentials_and_sigterm_stops_every_process(install):
    installation = install()
    with installation.output.open("wb") as output:
        installation.process = subprocess.Popen(
            ["make", "up", f"PORT={installation.port}", f"DATA_DIR={installation.data_dir}"],
            cwd=BASE_DIR,
            env={**installation.environment, "MAKEFLAGS": ""},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    installation.wait_until_output_contains("Slipway is ready")
    facts = installation.bootstrap()
    password = (installation.data_dir / "secrets/admin_password").read_text()

    assert installation.url in installation.read_output()
    assert facts["api_key"] in installation.read_output()
    assert f"admin@localhost  {password}" in installation.read_output()
    assert greet_agent(installation, facts["api_key"])["messages"][-1]["type"] == "ai"

    installation.stop(signal.SIGTERM)
    wait_until(lambda: installation.processes() == [], "the end of everything")


@pytest.mark.slow
def test_a_second_start_has_the_data_of_the_first(install):
    installation = start(install())
    first = installation.bootstrap()
    password = (installation.data_dir / "secrets/admin_password").read_text()
    assert installation.stop(signal.SIGINT) == 0

    start(installation)

    assert installation.bootstrap() == first
    assert first["api_key"] in installation.read_output()
    assert password in installation.read_output()
    assert greet_agent(installation, first["api_key"])["messages"][-1]["type"] == "ai"


@pytest.mark.slow
def test_two_installations_run_in_parallel_and_stop_separately(install):
    first, second = start(install("one")), start(install("other"))
    assert first.bootstrap()["api_key"] != second.bootstrap()["api_key"]

    assert first.stop() == 0

    assert first.processes() == []
    assert second.is_ready()


@pytest.mark.slow
def test_each_killed_process_restarts(install):
    installation = start(install())
    key = installation.bootstrap()["api_key"]

    for role in PROCESSES:
        before = installation.require_process(role)
        installation.kill(role)
        is_back = partial(installation.is_back, role, before)
        wait_until(is_back, f"the return of {role}")
        wait_until(installation.is_ready, f"readiness after the death of {role}")

        assert greet_agent(installation, key)["messages"][-1]["type"] == "ai"
    log = (installation.data_dir / "logs/supervisor.log").read_text()
    assert [role for role in PROCESSES if f"{role} exited; restarting it" not in log] == []


def test_platform_processes_are_forks_of_one_import_and_children_of_the_supervisor(live):
    supervisor = live.installation.require_process("supervisor")
    server = live.installation.require_process("fork-server")

    for role in ("web", "worker", "builder", "beat"):
        process = live.installation.require_process(role)
        memory = process.memory_full_info()
        assert process.ppid() == supervisor.pid
        # A fork keeps the command that the fork server was executed with.
        assert process.exe() == server.exe()
        assert memory.rss - memory.uss > 50 << 20, f"{role} shares too little: {memory}"


def test_static_files_are_served_after_the_first_start(live):
    """The fork server starts before the first start collects them."""
    with urllib.request.urlopen(f"{live.url}/sign-in", timeout=60) as answer:
        page = answer.read().decode()
    paths = set(re.findall(r'(?:href|src)="(/static/[^"]+)"', page))

    assert paths
    for path in paths:
        assert live.installation.get(path) == 200, path


@pytest.mark.slow
def test_a_process_that_dies_with_the_fork_server_restarts(install):
    installation = start(install())
    before = installation.require_process("web")

    installation.kill("fork-server")
    installation.kill("web")

    wait_until(partial(installation.is_back, "web", before), "the return of web")
    wait_until(installation.is_ready, "readiness")
    wait_until(lambda: installation.find("fork-server"), "the return of the fork server")


@pytest.mark.slow
def test_a_restarting_web_process_refuses_no_connection(install):
    installation = start(install())

    installation.kill("web")

    assert installation.get("/healthz") == 200


@pytest.mark.slow
def test_after_kill_9_of_the_whole_tree_the_next_start_recovers(install):
    installation = start(install())
    key = installation.bootstrap()["api_key"]
    agent = greet_agent(installation, key)

    installation.kill_everything()

    assert installation.processes() == []
    start(installation)
    assert greet_agent(installation, key)["messages"][-1]["type"] == agent["messages"][-1]["type"]


@pytest.mark.slow
def test_no_process_survives_kill_9_of_the_supervisor(install):
    installation = start(install())
    key = installation.bootstrap()["api_key"]
    greet_agent(installation, key)
    tree = psutil.Process(installation.process.pid).children(recursive=True)

    installation.process.kill()
    installation.process.wait(30)

    _, alive = psutil.wait_procs(tree, timeout=120)
    assert alive == []


@pytest.mark.slow
def test_a_start_on_a_taken_port_prints_the_reason(install):
    installation = install()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", installation.port))
        taken.listen()

        installation.start()

        assert installation.exit_status() == 1
    assert installation.read_output().strip() == (
        f"Slipway did not start: Port {installation.port} is used by another program: choose "
        f"another with PORT, for example `make up PORT={installation.port + 1}`."
    )
    assert installation.processes() == []


@pytest.mark.slow
def test_a_start_on_data_of_a_newer_version_prints_the_reason(install):
    installation = start(install())
    with psycopg.connect(Instance(installation.data_dir).database_url) as connection:
        connection.execute(
            "INSERT INTO django_migrations (app, name, applied) VALUES (%s, %s, now())",
            ["tracing", "9999_the_future"],
        )
        connection.execute("COMMENT ON DATABASE slipway IS 'prepared for the future'")
    installation.stop()

    installation.start()

    assert installation.exit_status() == 1
    assert (
        "Slipway did not start: The data was written by a newer Slipway, which migrated it to "
        "tracing.9999_the_future: start that version, or set DATA_DIR to another folder."
    ) in installation.read_output()
    assert installation.processes() == []


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_start_on_a_full_disk_prints_the_reason(install):
    installation = install()
    installation.data_dir.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", installation.data_dir], check=False
    )
    if mounted.returncode != 0:
        pytest.skip("this container may not mount")
    try:
        installation.start()

        assert installation.exit_status() == 1
        assert installation.read_output().strip() == (
            f"Slipway did not start: The disk of the data folder {installation.data_dir} is full: "
            "Slipway needs at least 256 MB of free space there."
        )
    finally:
        subprocess.run(["umount", installation.data_dir], check=True)
