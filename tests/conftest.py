"""Fixtures for all tests; the servers that tests need are started by tests.services."""

from __future__ import annotations

import gc
import os
import re
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import httpx
import pytest
import time_machine
from django.conf import settings
from django.db.backends.postgresql.creation import DatabaseCreation
from django.test import TransactionTestCase
from django.utils import timezone
from pytest_django import DjangoDbBlocker

from tests import agent_client, database, examples
from tests import live as live_platform
from tests.contract.deployment import commit
from tests.crash import recorder as recorder_module
from tests.crash.recorder import Recorder
from tests.gate import run_folder
from tests.installation import Installation, wait_until
from tests.live import Live
from tests.starvation import trial as trial_module
from tests.starvation.trial import Trial
from tests.starvation.victim import Victim

if TYPE_CHECKING:
    from apps.organizations.models import Workspace

LINES_OF_LOG = 25
KILLABLE = {
    "EGRESS_NETWORKS": recorder_module.NETWORK,
    "ALLOW_PRIVATE_ADDRESSES": "true",  # webhook receivers are on this machine
    "SAMPLE_AGENT": "false",
    "WARM_GRAPH_HOSTS": "0",
    "AGENT_RUNS_PER_WORKER": "10",  # 8 of an organization, 7 of a deployment
    "MAX_QUEUED_RUNS_PER_DEPLOYMENT": "15",
    "STREAM_RUN_MB": "1",
    "STREAM_DEPLOYMENT_MB": "2",
    "MAX_DEPLOYMENTS": "4",
    "MAX_REVISIONS_PER_DAY": "6",
}
"""Settings of the installation `killable`."""
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
FAST_HASHER = "django.contrib.auth.hashers.MD5PasswordHasher"


def pytest_configure() -> None:
    examples.load_profile()
    # Each client of a test makes the middleware anew, which would read all static files first.
    settings.WHITENOISE_AUTOREFRESH = True
    agent_client.install()
    DatabaseCreation._destroy_test_db = database.drop_with_sessions  # type: ignore[method-assign]
    TransactionTestCase._fixture_teardown = database.empty_tables  # type: ignore[attr-defined]
    # Argon2 is slow by design; hashes of the product's hasher remain readable.
    settings.PASSWORD_HASHERS = [FAST_HASHER, *settings.PASSWORD_HASHERS]


def pytest_make_parametrize_id(val: object) -> str | None:
    """Leave random ids out of a test's name, which must be the same in each process."""
    text = str(val) if isinstance(val, UUID) else val
    if not isinstance(text, str) or not _UUID.search(text):
        return None
    return _UUID.sub("uuid", text)


@pytest.fixture(scope="session")
def live() -> Live:
    """The whole platform, shared by the test run; tests create rows with their own names in it."""
    return live_platform.start_or_attach(
        Path(os.environ[run_folder.FOLDER]), run=int(os.environ[run_folder.RUN])
    )


@pytest.fixture(scope="session")
def killable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """The installation that is attacked and whose processes are killed, by the group `machine`.

    One for all of them: a start costs more than many kills. Its limits are low, so that few
    requests reach them.
    """
    installation = Installation(tmp_path_factory.mktemp("killable") / "data", **KILLABLE)
    installation.start()
    installation.wait_until_ready()
    yield installation
    assert installation.stop() == 0


@pytest.fixture(scope="session")
def killable_key(killable: Installation) -> str:
    return killable.bootstrap()["api_key"]


@pytest.fixture(scope="session")
def recorder() -> Iterator[Recorder]:
    with Recorder() as recorder:
        yield recorder


@pytest.fixture(scope="session")
def killable_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with all graphs of the installation `killable`."""
    repository = tmp_path_factory.mktemp("agents") / "repository"
    commit(trial_module.AGENT, repository)
    return repository


@pytest.fixture(scope="session")
def killable_agent_url(
    killable: Installation, killable_repository: Path, recorder: Recorder
) -> str:
    """The agent of the installation's first organization, without traces."""
    killable.wait_until_ready()
    variables = f"RECORDER={recorder.url}", trial_module.NO_TRACES
    return killable.deploy("victim", killable_repository, *variables)


@pytest.fixture(scope="session")
def whole_trial(
    killable: Installation, killable_key: str, killable_repository: Path, killable_agent_url: str
) -> Trial:
    victim = Victim(killable.url, killable_key, killable_agent_url)
    return Trial(killable, killable_repository, victim)


@pytest.fixture
def trial(whole_trial: Trial) -> Trial:
    """Two organizations of the installation `killable`, each with an agent: victim and attacker."""
    whole_trial.installation.wait_until_ready()
    return whole_trial


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
        answer = httpx.get(info, headers=live.headers, timeout=60)
        return bool(answer.is_success and answer.json()["host"]["revision_id"])

    wait_until(serves, "the sample agent's deployment", seconds=300)
    return SampleAgent(live.agent_url(), live.api_key)


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    request: pytest.FixtureRequest,
    django_db_modify_db_settings: None,
    django_test_environment: None,
    django_db_blocker: DjangoDbBlocker,
) -> None:
    """Let each worker of pytest-xdist copy one migrated database instead of migrating its own."""
    with django_db_blocker.unblock():
        database.copy_on_setup(Path(os.environ[run_folder.FOLDER]), request.config)


@pytest.fixture
def workspace(db: None) -> Workspace:
    """An empty workspace of an organization of its own."""
    from tests.factories.organizations import WorkspaceFactory

    return WorkspaceFactory()


@pytest.fixture
def unexpired_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop the clock of `TTLCache`, so that a slow machine counts the same queries."""
    now = time.monotonic()
    monkeypatch.setattr("apps.core.ttl_cache.time", SimpleNamespace(monotonic=lambda: now))


@pytest.fixture
def stopped_clock() -> Iterator[None]:
    """No interval of a limit or a chart ends during the test."""
    with time_machine.travel(timezone.now(), tick=False):
        yield


@pytest.fixture
def django_assert_num_queries(unexpired_caches: None, django_assert_num_queries: Any) -> Any:
    return django_assert_num_queries


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the last log lines of the live platform to the report of a failed test."""
    report = yield
    live_fixture = getattr(item, "funcargs", {}).get("live")
    if report.failed and live_fixture is not None:
        for log in sorted((live_fixture.installation.data_dir / "logs").glob("*.log")):
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


OWN_PROCESSES = {"host", "killable"}
"""Fixtures that start processes."""


def pytest_collection_finish() -> None:
    """Exclude what exists now from garbage collection, which would traverse it again and again."""
    gc.freeze()
    # At the default of 700 objects, each request of a test starts dozens of collections.
    gc.set_threshold(20_000, 20, 20)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "live" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.live)
        folders = set(item.path.relative_to(item.config.rootpath).parts)
        if INTEGRATION_FOLDERS & folders or OWN_PROCESSES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.integration)
