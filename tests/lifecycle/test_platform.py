"""Whole installations, as `make up` runs them. The short form of these is the `live` platform."""

import json
import os
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

PROCESSES = ["web", "worker", "builder", "beat", "redis", "postgres"]


def start(installation):
    installation.start()
    installation.wait_until_said("Slipway is ready")
    return installation


def parts(installation):
    with urllib.request.urlopen(f"{installation.url}/readyz", timeout=10) as answer:
        return json.load(answer)


def ask_the_agent(installation, key):
    """The sample agent's answer to a greeting, through the ordinary door."""
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


def test_ready_means_that_every_part_is(live):
    assert parts(live.installation) == {
        "ready": True,
        "parts": dict.fromkeys(["database", "redis", "worker", "builder", "beat"], "ok"),
    }


def test_a_management_command_finds_the_running_installation(live):
    said = json.loads(
        live.manage(
            "bootstrap", "--organization", "Slipway", "--email", "admin@localhost", "--json"
        ).stdout
    )

    assert said["organization_id"] == live.organization_id
    assert said["api_key"] == live.api_key
    assert said["api_url"] == f"{live.url}/api/v1"


@pytest.mark.slow
def test_make_up_says_how_to_get_in_and_sigterm_to_make_stops_everything(install):
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
    installation.wait_until_said("Slipway is ready")
    facts = installation.bootstrap()
    password = (installation.data_dir / "secrets/admin_password").read_text()

    assert installation.url in installation.said()
    assert facts["api_key"] in installation.said()
    assert f"admin@localhost  {password}" in installation.said()
    assert ask_the_agent(installation, facts["api_key"])["messages"][-1]["type"] == "ai"

    installation.stop(signal.SIGTERM)
    wait_until(lambda: installation.processes() == [], "the end of everything", 60)


@pytest.mark.slow
def test_a_second_start_finds_what_the_first_one_kept(install):
    installation = start(install())
    first = installation.bootstrap()
    password = (installation.data_dir / "secrets/admin_password").read_text()
    assert installation.stop(signal.SIGINT) == 0

    start(installation)

    assert installation.bootstrap() == first
    assert first["api_key"] in installation.said()
    assert password in installation.said()
    assert ask_the_agent(installation, first["api_key"])["messages"][-1]["type"] == "ai"


@pytest.mark.slow
def test_two_run_beside_each_other_and_one_stops_alone(install):
    one, other = start(install("one")), start(install("other"))
    assert one.bootstrap()["api_key"] != other.bootstrap()["api_key"]

    assert one.stop() == 0

    assert one.processes() == []
    assert other.is_ready()


@pytest.mark.slow
def test_each_killed_process_is_back_in_a_moment(install):
    installation = start(install())
    key = installation.bootstrap()["api_key"]

    for role in PROCESSES:
        before = installation.one(role)
        installation.kill(role)
        back = partial(installation.is_back, role, before)
        wait_until(back, f"the return of {role}", 60)
        wait_until(installation.is_ready, f"readiness after the death of {role}", 60)

        assert ask_the_agent(installation, key)["messages"][-1]["type"] == "ai"


@pytest.mark.slow
def test_a_web_process_that_is_started_again_refuses_nobody(install):
    installation = start(install())

    installation.kill("web")

    assert installation.get("/healthz") == 200


@pytest.mark.slow
def test_after_kill_9_of_the_whole_tree_the_next_start_recovers(install):
    installation = start(install())
    key = installation.bootstrap()["api_key"]
    agent = ask_the_agent(installation, key)

    installation.kill_everything()

    assert installation.processes() == []
    start(installation)
    assert ask_the_agent(installation, key)["messages"][-1]["type"] == agent["messages"][-1]["type"]


@pytest.mark.slow
def test_no_process_survives_kill_9_of_the_supervisor(install):
    installation = start(install())
    key = installation.bootstrap()["api_key"]
    ask_the_agent(installation, key)
    tree = psutil.Process(installation.process.pid).children(recursive=True)

    installation.process.kill()
    installation.process.wait(30)

    _, alive = psutil.wait_procs(tree, timeout=60)
    assert alive == []


@pytest.mark.slow
def test_a_taken_port_is_told_in_a_sentence(install):
    installation = install()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", installation.port))
        taken.listen()

        installation.start()

        assert installation.exit_status() == 1
    assert installation.said().strip() == (
        f"Slipway did not start: Port {installation.port} is used by another program: choose "
        f"another with PORT, for example `make up PORT={installation.port + 1}`."
    )
    assert installation.processes() == []


@pytest.mark.slow
def test_data_of_a_newer_slipway_is_told_in_a_sentence(install):
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
    ) in installation.said()
    assert installation.processes() == []


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_full_disk_is_told_in_a_sentence(install):
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
        assert installation.said().strip() == (
            f"Slipway did not start: The disk of the data folder {installation.data_dir} is full: "
            "Slipway needs at least 256 MB of free space there."
        )
    finally:
        subprocess.run(["umount", installation.data_dir], check=True)
