"""The embedded PostgreSQL and Redis under the supervisor, without the platform: quick to start."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
import redis

from apps.core.instance import SERVICE_UID, Instance
from config.embedded.launch import ParentBoundProcess
from config.env import BASE_DIR
from tests.installation import wait_until

pytestmark = pytest.mark.lifecycle


def start(installation):
    installation.start("--services-only")
    installation.wait_until_said("Ready")
    return installation


def ask(installation, question):
    with psycopg.connect(Instance(installation.data_dir).database_url) as connection:
        return connection.execute(question).fetchone()[0]


def tell(installation, statement):
    with psycopg.connect(Instance(installation.data_dir).database_url) as connection:
        connection.execute(statement)


def redis_answers(installation):
    try:
        with redis.Redis.from_url(Instance(installation.data_dir).redis_url) as client:
            return client.ping()
    except redis.RedisError:
        return False


def postgres_answers(installation):
    try:
        return ask(installation, "SELECT 1") == 1
    except psycopg.OperationalError:
        return False


def test_they_answer_on_sockets_that_only_their_owner_can_reach_and_on_no_port(install):
    services = start(install())
    owner = SERVICE_UID if os.geteuid() == 0 else os.geteuid()

    sockets = Instance(services.data_dir).socket_dir
    listening = [
        connection
        for process in services.processes()
        for connection in process.net_connections("inet")
    ]

    assert ask(services, "SHOW server_version_num").startswith("18")
    assert ask(services, "SELECT '[3,4]'::vector <-> '[0,0]'") == 5.0
    assert redis_answers(services)
    assert (sockets.stat().st_uid, oct(sockets.stat().st_mode & 0o777)) == (owner, "0o700")
    assert (sockets / "redis.sock").stat().st_mode & 0o077 == 0
    assert (sockets / ".s.PGSQL.5432").stat().st_mode & 0o077 == 0
    assert listening == []


def test_the_platforms_role_is_no_superuser(install):
    services = start(install())

    assert ask(services, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user") is False


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_everything_and_the_next_start_finds_the_data(install, ending):
    services = start(install())
    tell(services, "CREATE TABLE kept AS SELECT 42 AS answer")

    status = services.stop(ending)

    assert status == 0
    assert services.processes() == []
    assert ask(start(services), "SELECT answer FROM kept") == 42


def test_after_kill_9_of_everything_the_next_start_recovers(install):
    services = start(install())
    tell(services, "CREATE TABLE kept AS SELECT 42 AS answer")

    services.kill_everything()

    assert services.processes() == []
    assert ask(start(services), "SELECT answer FROM kept") == 42


def test_after_a_restart_of_the_machine_a_stale_number_is_no_obstacle(install):
    services = start(install())
    services.kill_everything()
    lock = services.data_dir / "postgres/postmaster.pid"
    lines = lock.read_text().splitlines()
    lock.write_text("\n".join([str(os.getpid()), *lines[1:]]))

    assert ask(start(services), "SELECT 1") == 1


def test_nothing_survives_kill_9_of_the_supervisor(install):
    services = start(install())

    services.process.kill()
    services.process.wait(30)

    wait_until(lambda: services.processes() == [], "the end of the servers", 30)
    assert ask(start(services), "SELECT 1") == 1


def test_it_ends_with_its_companion(install):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as companion:
        services = install()
        services.start("--services-only", companion=companion.pid)
        services.wait_until_said("Ready")

    assert services.exit_status() == 0
    assert services.processes() == []


@pytest.mark.parametrize(
    ("role", "answers"), [("postgres", postgres_answers), ("redis", redis_answers)]
)
def test_a_killed_server_is_back_in_a_moment(install, role, answers):
    services = start(install())
    before = services.one(role)

    services.kill(role)

    wait_until(lambda: answers(services), f"the return of {role}", 60)
    assert services.is_back(role, before)


def test_a_second_start_on_the_same_folder_is_refused(install):
    services = start(install())
    second = type(services)(services.data_dir)
    second.output = services.output.with_suffix(".second")

    second.start("--services-only")

    assert second.exit_status() == 1
    assert second.said().strip() == (
        f"Slipway did not start: Slipway already runs on the data folder {services.data_dir} "
        f"(process {services.process.pid}); set DATA_DIR to run another instance."
    )
    assert postgres_answers(services)


def test_data_of_another_postgresql_is_refused(install):
    services = start(install())
    services.stop()
    (services.data_dir / "postgres/PG_VERSION").write_text("17\n")

    services.start("--services-only")

    assert services.exit_status() == 1
    assert services.said().strip() == (
        f"Slipway did not start: The data in {services.data_dir}/postgres belongs to PostgreSQL "
        "17, but this Slipway runs PostgreSQL 18. Dump it with the old version, or set DATA_DIR "
        "to another folder."
    )


def test_a_wrong_setting_is_refused_by_its_name(install):
    services = install(WEB_PROCESSES="none")

    services.start()

    assert services.exit_status() == 1
    assert services.said().strip() == (
        "Slipway did not start: WEB_PROCESSES: input should be a valid integer, unable to parse "
        "string as an integer."
    )


def test_a_path_too_long_for_sockets_works_too(install):
    services = start(install("long" * 30))
    sockets = Instance(services.data_dir).socket_dir

    assert postgres_answers(services)
    assert redis_answers(services)
    services.stop()
    sockets.rmdir()


@pytest.mark.skipif(os.geteuid() != 0, reason="already runs as an ordinary user")
@pytest.mark.parametrize("uid", [65534, 54321], ids=["with a name", "without a name"])
def test_an_ordinary_user_can_run_them(install, uid):
    services = install("of a user")
    services.data_dir.mkdir()
    os.chown(services.data_dir, uid, uid)
    # The interpreter of a developer may lie in a home that is closed to others.
    words = ParentBoundProcess(
        uid=uid, needs=[Path(sys.executable).resolve()], deadly=signal.SIGTERM
    ).command([sys.executable, "-m", "config.supervisor", "--services-only"])
    if "--reach" in words and uid == 54321:
        pytest.skip("bubblewrap, which lends the name, refuses a capability to reach closed homes")
    with services.output.open("wb") as output:
        services.process = subprocess.Popen(
            words, cwd=BASE_DIR, env=services.environment, stdout=output, stderr=output
        )

    services.wait_until_said("Ready")

    assert {process.uids().real for process in services.processes()} == {uid}
    assert postgres_answers(services)
    assert services.stop() == 0
    assert services.processes() == []
