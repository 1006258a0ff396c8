"""Fixtures for all tests; the servers that tests need are started by tests.services."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from django.conf import settings
from django.db import connection
from django.db.models.signals import post_migrate
from pytest_django import DjangoDbBlocker

from tests import agent_client, template_database
from tests import live as live_platform
from tests.gate import run_folder
from tests.installation import Installation, wait_until
from tests.live import Live

LINES_OF_LOG = 25
FAST_HASHER = "django.contrib.auth.hashers.MD5PasswordHasher"


def pytest_configure() -> None:
    # Each client of a test makes the middleware anew, which would read all static files first.
    settings.WHITENOISE_AUTOREFRESH = True
    agent_client.install()
    # Argon2 is slow by design; hashes of the product's hasher remain readable.
    settings.PASSWORD_HASHERS = [FAST_HASHER, *settings.PASSWORD_HASHERS]


@pytest.fixture(scope="session")
def live() -> Live:
    """The whole platform, shared by the test run: make things of your own names in it."""
    return live_platform.shared(
        Path(os.environ[run_folder.FOLDER]), run=int(os.environ[run_folder.RUN])
    )


@pytest.fixture(scope="session")
def killable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """The installation whose processes are killed, by tests of the group `machine`.

    One for all of them: a start costs more than many kills.
    """
    installation = Installation(tmp_path_factory.mktemp("killable") / "data")
    installation.start()
    installation.wait_until_ready()
    yield installation
    assert installation.stop() == 0


@pytest.fixture(scope="session")
def killable_key(killable: Installation) -> str:
    return killable.bootstrap()["api_key"]


@dataclass(frozen=True)
class SampleAgent:
    """The agent that `make up` deploys."""

    url: str
    api_key: str


@pytest.fixture(scope="session")
def sample_agent(live: Live) -> SampleAgent:
    """The sample agent of the whole platform, once it serves."""
    info = f"{live.agent_url()}/info"

    def serves() -> bool:
        answer = httpx.get(info, headers=live.headers, timeout=10)
        return bool(answer.is_success and answer.json()["host"]["revision_id"])

    wait_until(serves, "the sample agent's deployment", seconds=180)
    return SampleAgent(live.agent_url(), live.api_key)


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    django_db_modify_db_settings: None,
    django_test_environment: None,
    django_db_blocker: DjangoDbBlocker,
) -> None:
    """Let pytest-xdist's workers copy one migrated database instead of migrating one each."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        with django_db_blocker.unblock():
            template_database.use(Path(os.environ[run_folder.FOLDER]))


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """As pytest-django has it; at the end the sessions of lasting threads are ended first.

    Tests that commit empty every table afterwards, and the audit log lets nobody else do that.
    """
    way = "slipway.audit=truncate"
    options = connection.settings_dict["OPTIONS"]
    options["options"] = f"{options.get('options', '')} -c {way}".strip()
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute(f"SET {way}")
    # Emptying the tables would end with making these anew, and no test asks for them.
    post_migrate.disconnect(dispatch_uid="django.contrib.auth.management.create_permissions")
    yield
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid, 10_000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND backend_type = 'client backend'"
        )


@pytest.fixture(autouse=True)
def tables_without_models(
    request: pytest.FixtureRequest, django_db_blocker: DjangoDbBlocker
) -> Iterator[None]:
    """Empties what a test committed into tables that no model has, which Django would leave."""
    yield
    if not _commits(request):
        return
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute(
            "SELECT c.oid::regclass::text FROM pg_class c WHERE relkind IN ('r', 'p')"
            " AND NOT relispartition AND relnamespace = 'public'::regnamespace"
        )
        models = {*connection.introspection.django_table_names(), "django_migrations"}
        tables = [name for (name,) in cursor.fetchall() if name not in models]
        for table in tables:
            cursor.execute(f"SELECT EXISTS (SELECT 1 FROM {table})")
            if cursor.fetchone() == (True,):
                cursor.execute(f"TRUNCATE {table}")


def _commits(request: pytest.FixtureRequest) -> bool:
    mark = request.node.get_closest_marker("django_db")
    marked = mark is not None and (mark.kwargs.get("transaction") or any(mark.args))
    return bool(marked) or "transactional_db" in request.fixturenames


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What the live platform said lately stands beside a failure on it."""
    report = yield
    found = getattr(item, "funcargs", {}).get("live")
    if report.failed and found is not None:
        for log in sorted((found.installation.data_dir / "logs").glob("*.log")):
            lines = log.read_text(errors="replace").splitlines()[-LINES_OF_LOG:]
            report.sections.append((f"the platform's {log.name}", "\n".join(lines)))
    return report


INTEGRATION_FOLDERS = {
    "agent_patterns",
    "agent_runtime",
    "chaos",
    "contract",
    "crash",
    "lifecycle",
    "malicious_agent",
    "regions",
    "sandbox",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "live" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.live)
        folders = set(item.path.relative_to(item.config.rootpath).parts)
        if INTEGRATION_FOLDERS & folders or "host" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.integration)
