"""PostgreSQL and Redis for the test run: a pytest plugin that is loaded before Django's settings.

Where DATABASE_URL is set, those servers are used. Otherwise one embedded pair is started in the
run's folder; pytest-xdist's workers, and the phases of the gate, inherit its address.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Generator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from apps.core.instance import Instance
from tests import live
from tests.gate import phases, run_folder
from tests.gate.run_folder import FOLDER
from tests.installation import Installation

# Autovacuum locks a table for moments, and a test that waits then fails when the code under test
# has set a `lock_timeout` for its transaction, which lasts as long as that of the test.
# A statement, a lock or an idle transaction that lasts longer is a defect of a test, which would
# otherwise wait for it for ever. These databases hold nothing that outlives the run.
POSTGRES_SETTINGS = """
fsync = off
full_page_writes = off
synchronous_commit = off
autovacuum = off
lock_timeout = '30s'
statement_timeout = '120s'
idle_in_transaction_session_timeout = '120s'
log_lock_waits = on
autovacuum = off
"""
CONNECTIONS = "300"

_own: Installation | None = None


def _start_services() -> Installation:
    services = Installation(Path(os.environ[FOLDER], "services"), DATABASE_CONNECTIONS=CONNECTIONS)
    services.start("--services-only")
    services.wait_until_output_contains("Ready")
    instance = Instance(services.data_dir)
    os.environ["DATABASE_URL"] = instance.database_url
    os.environ["REDIS_URL"] = instance.redis_url
    _configure(instance)
    return services


def _configure(instance: Instance) -> None:
    """Apply the settings to the running server.

    Platforms that tests start (live, killed, restarted) have their own servers, with fsync.
    """
    folder = instance.postgres_dir
    with (folder / "postgresql.auto.conf").open("a") as settings:
        settings.write(POSTGRES_SETTINGS)
    server = int((folder / "postmaster.pid").read_text().split()[0])
    os.kill(server, signal.SIGHUP)


def _own_redis_database(url: str) -> str:
    """Return the URL of a Redis database for this worker (gw0, gw1, ...) of this phase."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if not worker:
        return url
    names = [phase.name for phase in phases.PHASES]
    phase = os.environ.get(phases.NAME)
    first = 4 * names.index(phase) if phase in names else 0
    number = (first + int(worker.removeprefix("gw"))) % 14 + 1
    parts = urlsplit(url)
    if parts.scheme == "unix":
        # `geturl` would drop the empty host, which redis-py requires.
        return f"unix://{parts.path}?db={number}"
    return parts._replace(path=f"/{number}").geturl()


# Some environments forbid bytecode: each process would compile all tests anew, 6 s of CPU.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
_is_main_process = FOLDER not in os.environ
if _is_main_process:
    run_folder.create()
    if "DATABASE_URL" not in os.environ:
        _own = _start_services()
# Phases that run side by side have folders of their own: one of them collects static files.
_data_folder = Path(os.environ[FOLDER], f"platform-{os.environ.get(phases.NAME, 'all')}")
# Whitenoise warns of a missing folder, and here warnings are errors.
(_data_folder / "static").mkdir(parents=True, exist_ok=True)
os.environ["DATA_DIR"] = str(_data_folder)
os.environ["REDIS_URL"] = _own_redis_database(os.environ["REDIS_URL"])
# A test run exceeds the rate limits of its address and keys; tests of limits turn them on.
os.environ.setdefault("RATE_LIMIT_FACTOR", "0")


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests() -> Generator[None, object, object]:
    """Import Django and the apps without looking for garbage among them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_unconfigure(config: pytest.Config) -> None:
    if _is_main_process:
        stop()


def stop() -> None:
    """Stop the servers and the live platform, and delete the run's folder; kill what resists."""
    folder = Path(os.environ[FOLDER])
    live.stop(folder)
    if _own is not None:
        _own.end()
    run_folder.remove(folder)
