"""PostgreSQL and Redis for the test run: a pytest plugin that is loaded before Django's settings.

Where DATABASE_URL is set, those servers are used. Otherwise one embedded pair is started in a
folder that is deleted after the run; pytest-xdist's workers inherit its address.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from apps.core.instance import Instance
from tests import live
from tests.installation import Installation

FOLDER = "SLIPWAY_TEST_FOLDER"
"""The environment variable with a folder that the whole test run shares."""
RUN = "SLIPWAY_TEST_RUN"
"""The environment variable with the id of the main process of the test run."""

_own: Installation | None = None


def _make_folder() -> None:
    folder = Path(tempfile.mkdtemp(prefix="slipway-tests-"))
    # Users of services and agents must be able to traverse the folder.
    folder.chmod(0o711)
    os.environ[FOLDER] = str(folder)
    os.environ[RUN] = str(os.getpid())


def _start_services() -> Installation:
    services = Installation(Path(os.environ[FOLDER], "services"))
    services.start("--services-only")
    services.wait_until_output_contains("Ready")
    instance = Instance(services.data_dir)
    os.environ["DATABASE_URL"] = instance.database_url
    os.environ["REDIS_URL"] = instance.redis_url
    _disable_fsync(instance)
    return services


def _disable_fsync(instance: Instance) -> None:
    """Turn off fsync: the data of these databases is not needed after the test run.

    Platforms that tests start (live, killed, restarted) have their own servers with fsync.
    """
    folder = instance.postgres_dir
    with (folder / "postgresql.auto.conf").open("a") as settings:
        settings.write("fsync = off\nfull_page_writes = off\n")
    server = int((folder / "postmaster.pid").read_text().split()[0])
    os.kill(server, signal.SIGHUP)


def _own_redis_database(url: str) -> str:
    """Return the URL of a Redis database for this worker of pytest-xdist (gw0, gw1, ...)."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if not worker:
        return url
    number = int(worker.removeprefix("gw")) % 14 + 1
    parts = urlsplit(url)
    if parts.scheme == "unix":
        # `geturl` would drop the empty host, which redis-py requires.
        return f"unix://{parts.path}?db={number}"
    return parts._replace(path=f"/{number}").geturl()


_is_the_run_itself = FOLDER not in os.environ
if _is_the_run_itself:
    _make_folder()
    if "DATABASE_URL" not in os.environ:
        _own = _start_services()
    os.environ["DATA_DIR"] = str(Path(os.environ[FOLDER], "platform"))
    # Whitenoise warns of a missing folder, and here warnings are errors.
    Path(os.environ["DATA_DIR"], "static").mkdir(parents=True)
os.environ["REDIS_URL"] = _own_redis_database(os.environ["REDIS_URL"])
# A test run exceeds the rate limits of its address and keys; tests of limits turn them on.
os.environ.setdefault("RATE_LIMIT_FACTOR", "0")


def pytest_unconfigure(config: pytest.Config) -> None:
    if not _is_the_run_itself:
        return
    folder = Path(os.environ.pop(FOLDER))
    live.stop(folder)
    if _own is not None:
        _own.stop()
    shutil.rmtree(folder, ignore_errors=True)
