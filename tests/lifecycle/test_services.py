"""The embedded PostgreSQL and Redis under the supervisor, without the platform."""

import ctypes
import functools
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import psycopg
import pytest
import redis

from apps.core.instance import SERVICE_UID, Instance
from config.embedded import postgres
from config.embedded.launch import ParentBoundProcess, find_closed_folder
from config.embedded.parent_death import CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
from config.env import BASE_DIR
from tests.gate import run_folder
from tests.installation import wait_until

pytestmark = pytest.mark.lifecycle

PR_CAPBSET_DROP = 24


@functools.cache
def initialized_postgres() -> Path:
    """Return the data folder of a server that never ran; `initdb` takes a second of CPU."""
    instance = Instance(Path(os.environ[run_folder.FOLDER], f"initialized-{os.getpid()}"))
    postgres.Postgres(instance=instance).prepare()
    return instance.postgres_dir


def start(installation):
    """Start the services; the first start is one after `initdb`, which the test run itself runs."""
    folder = Instance(installation.data_dir).postgres_dir
    if not folder.exists():
        installation.data_dir.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "-a", initialized_postgres(), folder], check=True)
    installation.start("--services-only")
    installation.wait_until_output_contains("Ready")
    return installation


def query_value(installation, statement):
    with psycopg.connect(Instance(installation.data_dir).database_url) as connection:
        return connection.execute(statement).fetchone()[0]


def execute_statement(installation, statement):
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
        return query_value(installation, "SELECT 1") == 1
    except psycopg.OperationalError:
        return False


def test_services_listen_on_private_sockets_and_on_no_port(install):
    services = start(install())
    owner = SERVICE_UID if os.geteuid() == 0 else os.geteuid()

    sockets = Instance(services.data_dir).socket_dir
    listening = [
        connection
        for process in services.processes()
        for connection in process.net_connections("inet")
    ]

    assert query_value(services, "SHOW server_version_num").startswith("18")
    assert query_value(services, "SELECT '[3,4]'::vector <-> '[0,0]'") == 5.0
    assert redis_answers(services)
    assert (sockets.stat().st_uid, oct(sockets.stat().st_mode & 0o777)) == (owner, "0o700")
    assert (sockets / "redis.sock").stat().st_mode & 0o077 == 0
    assert (sockets / ".s.PGSQL.5432").stat().st_mode & 0o077 == 0
    assert listening == []


def test_the_platforms_database_role_is_not_a_superuser(install):
    services = start(install())

    assert (
        query_value(services, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user") is False
    )


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_all_services_and_the_next_start_has_the_data(install, ending):
    services = start(install())
    execute_statement(services, "CREATE TABLE kept AS SELECT 42 AS answer")

    status = services.stop(ending)

    assert status == 0
    assert services.processes() == []
    assert query_value(start(services), "SELECT answer FROM kept") == 42


def test_the_next_start_recovers_after_kill_9_of_all_processes(install):
    services = start(install())
    execute_statement(services, "CREATE TABLE kept AS SELECT 42 AS answer")

    services.kill_everything()

    assert services.processes() == []
    assert query_value(start(services), "SELECT answer FROM kept") == 42


def test_a_stale_pid_file_does_not_prevent_the_start(install):
    services = start(install())
    services.kill_everything()
    lock = services.data_dir / "postgres/postmaster.pid"
    lines = lock.read_text().splitlines()
    lock.write_text("\n".join([str(os.getpid()), *lines[1:]]))

    assert query_value(start(services), "SELECT 1") == 1


def test_no_service_survives_kill_9_of_the_supervisor(install):
    services = start(install())

    services.process.kill()
    services.process.wait(30)

    wait_until(lambda: services.processes() == [], "the end of the servers")
    assert query_value(start(services), "SELECT 1") == 1


def test_services_end_with_their_companion_process(install):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as companion:
        services = install()
        services.start("--services-only", companion=companion.pid)
        services.wait_until_output_contains("Ready")

    assert services.exit_status() == 0
    assert services.processes() == []


@pytest.mark.parametrize(
    ("role", "answers"), [("postgres", postgres_answers), ("redis", redis_answers)]
)
def test_a_killed_server_restarts(install, role, answers):
    services = start(install())
    before = services.require_process(role)

    services.kill(role)

    wait_until(lambda: answers(services), f"the return of {role}")
    assert services.is_back(role, before)
    log = (services.data_dir / "logs/supervisor.log").read_text()
    assert f"{role} exited; restarting it" in log


def test_a_second_start_on_the_same_folder_is_refused(install):
    services = start(install())
    second = type(services)(services.data_dir)
    second.output = services.output.with_suffix(".second")

    second.start("--services-only")

    assert second.exit_status() == 1
    assert second.read_output().strip() == (
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
    assert services.read_output().strip() == (
        f"Slipway did not start: The data in {services.data_dir}/postgres belongs to PostgreSQL "
        "17, but this Slipway runs PostgreSQL 18. Dump it with the old version, or set DATA_DIR "
        "to another folder."
    )


def test_an_invalid_setting_is_refused_by_name(install):
    services = install(WEB_PROCESSES="none")

    services.start()

    assert services.exit_status() == 1
    assert services.read_output().strip() == (
        "Slipway did not start: WEB_PROCESSES: input should be a valid integer, unable to parse "
        "string as an integer."
    )


def test_services_start_on_a_data_folder_path_too_long_for_sockets(install):
    services = start(install("long" * 30))
    sockets = Instance(services.data_dir).socket_dir

    assert postgres_answers(services)
    assert redis_answers(services)
    services.stop()
    sockets.rmdir()


@pytest.mark.skipif(os.geteuid() != 0, reason="already runs as an ordinary user")
@pytest.mark.parametrize("uid", [65534, 54321], ids=["with a name", "without a name"])
def test_services_run_as_an_ordinary_user(install, uid):
    services = install("of a user")
    services.data_dir.mkdir()
    os.chown(services.data_dir, uid, uid)
    # The interpreter may be in a home folder that other users cannot enter.
    command = ParentBoundProcess(
        uid=uid, needs=[Path(sys.executable).resolve()], deadly=signal.SIGTERM
    ).command([sys.executable, "-m", "config.supervisor", "--services-only"])
    if "--closed-folder" in command and uid == 54321:
        pytest.skip("bubblewrap, which lends the name, refuses a capability to reach closed homes")
    with services.output.open("wb") as output:
        services.process = subprocess.Popen(
            command, cwd=BASE_DIR, env=services.environment, stdout=output, stderr=output
        )

    services.wait_until_output_contains("Ready")

    assert {process.uids().real for process in services.processes()} == {uid}
    assert postgres_answers(services)
    assert services.stop() == 0
    assert services.processes() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts servers as another user")
def test_postgresql_starts_in_a_folder_that_its_user_cannot_enter(tmp_path, install, monkeypatch):
    """Debian's /root has mode 0700, and a clone there contains the programs and the data."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    package = Path(postgres._get_program("initdb")).parents[2]
    for folder in (package, package.with_name(f"{package.name}.libs")):
        shutil.copytree(folder, closed / folder.name, symlinks=True)
    program_dir = closed / postgres._get_program("initdb").relative_to(package.parent).parent
    monkeypatch.setattr(postgres, "find_postgres_program", program_dir.joinpath)
    instance = Instance(closed / "var")
    server = postgres.Postgres(instance=instance)

    server.prepare()
    with subprocess.Popen(server.command(closed / "postgres.log")) as process:
        try:
            wait_until(server.is_ready, "PostgreSQL")
            user = psutil.Process(process.pid).uids().real
        finally:
            process.send_signal(signal.SIGINT)

    assert user == SERVICE_UID
    assert process.returncode == 0


def drop_capabilities():
    """Give up the capabilities by which root reads everything, as some containers do."""
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts servers as another user")
def test_a_folder_that_no_other_user_can_enter_is_refused_by_name(tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    script = (
        "import sys; from pathlib import Path; from apps.core.instance import Instance;"
        "from config.embedded.launch import CannotStart; from config.embedded import postgres\n"
        "try: postgres.Postgres(instance=Instance(Path(sys.argv[1]))).prepare()\n"
        "except CannotStart as error: print(error)"
    )

    completed = subprocess.run(
        [sys.executable, "-c", script, closed / "var"],
        cwd=BASE_DIR,
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=drop_capabilities,
    )

    # In a checkout that is closed as well, the program is the first that the user cannot reach.
    named = find_closed_folder(BASE_DIR / "manage.py") or closed
    assert re.fullmatch(
        r"PostgreSQL could not create its data folder: user \d+ cannot enter "
        rf"{re.escape(str(named))}; install Slipway in another folder\n",
        completed.stdout,
    )
