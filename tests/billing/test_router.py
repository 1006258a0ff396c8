"""Billing records of a region are in the US database, and queries cannot bypass the router.

The EU region here is a separate database with commands in their own processes; they access the US
database with the role that other regions have.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from apps.core.instance import BILLING_ROLE
from config.env import BASE_DIR
from tests.database import NAME as TEMPLATE
from tests.database import Dump

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("regions")]

BILLING = {"billing_billingaccount", "billing_payment"}
SOURCES = ("apps/billing/database.py", "config/env.py", "config/settings.py")
"""They decide which tables a region has."""


# Runs each line, a JSON string of code, and prints a line with its output or its error.
SHELL = """
import contextlib, io, json, sys
for line in sys.stdin:
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output):
            exec(json.loads(line), {})
        answer = {"output": output.getvalue().strip()}
    except Exception as error:
        answer = {"error": str(error)}
    print(json.dumps(answer), flush=True)
"""


class RegionShell:
    """A process of a region that runs code; a start of it costs seconds of CPU."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "manage.py", "shell", "--no-imports", "-c", SHELL],
            cwd=BASE_DIR,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, code: str) -> dict[str, str]:
        """Return the `output` of the code, or its `error`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(code) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the process of the region has ended"
        answer: dict[str, str] = json.loads(line)
        return answer

    def execute(self, code: str) -> str:
        answer = self.run(code)
        assert "error" not in answer, answer
        return answer["output"]

    def close(self) -> None:
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()


class Databases:
    """The databases of the two regions in the test server."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self._parts = folder, urlsplit(url)
        worker = os.environ.get("PYTEST_XDIST_WORKER", "gw")
        self.names = {"us": f"region_us_{worker}", "eu": f"region_eu_{worker}"}
        self.shells: dict[str, RegionShell] = {}

    def url(self, region: str, role: str | None = None) -> str:
        host = self._parts.netloc
        if role is not None:
            host = f"{role}@{host.rpartition('@')[2]}"
        query = f"?{self._parts.query}" if self._parts.query else ""
        return f"postgresql://{host}/{self.names[region]}{query}"

    def environment(self, region: str) -> dict[str, str]:
        folder = self.folder / region
        folder.mkdir(exist_ok=True)
        variables = {
            **os.environ,
            "DATABASE_URL": self.url(region),
            "DATA_DIR": str(folder),
            "REGION": region,
        }
        if region == "eu":
            variables["BILLING_DATABASE_URL"] = self.url("us", BILLING_ROLE)
        return variables

    def counts(self, region: str) -> dict[str, int]:
        """Return the number of rows of each table, in all its partitions."""
        with psycopg.connect(self.url(region)) as connection:
            names = connection.execute(
                "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace"
                " AND relkind IN ('r', 'p') AND NOT relispartition ORDER BY 1"
            ).fetchall()
            return {
                name: connection.execute(  # type: ignore[index]
                    sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(name))
                ).fetchone()[0]
                for (name,) in names
            }


@pytest.fixture(scope="module")
def databases(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, django_db_setup: None
) -> Iterator[Databases]:
    databases_ = Databases(tmp_path_factory.mktemp("regions"), os.environ["DATABASE_URL"])
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:

        def drop() -> None:
            for name in databases_.names.values():
                drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
                connection.execute(drop.format(sql.Identifier(name)))

        drop()
        if not connection.execute(
            "SELECT 1 FROM pg_roles WHERE rolname = %s", [BILLING_ROLE]
        ).rowcount:
            # Embedded servers have the role; elsewhere the test user must be allowed to create it.
            connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(BILLING_ROLE)))
        us, eu, template = map(
            sql.Identifier, (databases_.names["us"], databases_.names["eu"], TEMPLATE)
        )
        connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(us, template))
        connection.execute(sql.SQL("CREATE DATABASE {}").format(eu))
        dump = Dump.find("eu", request.config, SOURCES)
        is_migrated = dump.restore(databases_.names["eu"])
        if not is_migrated:
            connection.execute(sql.SQL("DROP DATABASE {}").format(eu))
            connection.execute(sql.SQL("CREATE DATABASE {}").format(eu))
        with ExitStack() as stack:
            for region in databases_.names:
                shell = RegionShell(databases_.environment(region))
                stack.callback(shell.close)
                databases_.shells[region] = shell
            if not is_migrated:
                databases_.shells["eu"].execute(call("migrate", "verbosity=0"))
                dump.save(databases_.names["eu"])
            databases_.shells["us"].execute(call("billing_access"))
            yield databases_
        drop()


def call(*words: str) -> str:
    """Return code that calls a management command with options."""
    name, *options = words
    arguments = ", ".join([repr(name), *options])
    return f"from django.core.management import call_command; call_command({arguments})"


OPEN_ACCOUNTS = "from apps.billing import services; services.open_accounts()"
CREATE_ORGANIZATION = """
import io, json
from django.core.management import call_command
output = io.StringIO()
call_command("bootstrap", organization=__NAME__, email=__EMAIL__, json=True, stdout=output)
"""


def create_organization(databases: Databases, region: str, name: str, then: str = "") -> str:
    """Create an organization and run more code in the same process; return its id."""
    code = CREATE_ORGANIZATION.replace("__NAME__", repr(name))
    code = code.replace("__EMAIL__", repr(f"owner@{region}.example"))
    report = 'print(json.loads(output.getvalue())["organization_id"])'
    return databases.shells[region].execute(f"{code}\n{then}\n{report}")


def test_a_region_has_no_tables_for_billing_and_the_us_has(databases):
    assert set(databases.counts("us")) - set(databases.counts("eu")) == BILLING
    assert set(databases.counts("eu")) - set(databases.counts("us")) == set()


def test_sign_up_in_a_region_writes_only_billing_to_the_us(databases):
    # Open the accounts of organizations that earlier tests created.
    databases.shells["eu"].execute(OPEN_ACCOUNTS)
    counts_before = databases.counts("us")

    organization_id = create_organization(
        databases, "eu", "Europeans", then=f"{OPEN_ACCOUNTS}\n{OPEN_ACCOUNTS}"
    )

    counts_after = databases.counts("us")
    changed = {
        name: counts_after[name] - counts_before[name]
        for name in counts_after
        if counts_after[name] != counts_before[name]
    }
    assert changed == {"billing_billingaccount": 1}
    with psycopg.connect(databases.url("us")) as connection:
        rows = connection.execute(
            "SELECT region, name, email FROM billing_billingaccount WHERE organization_id = %s",
            [organization_id],
        ).fetchall()
    assert rows == [("eu", "", "")]


def test_sign_up_in_the_us_writes_nothing_to_the_region(databases):
    counts_before = databases.counts("eu")

    create_organization(databases, "us", "Americans", then=OPEN_ACCOUNTS)

    assert databases.counts("eu") == counts_before


BYPASS_ATTEMPTS = {
    "billing rows in the region's own database": (
        (
            "from apps.billing.models import BillingAccount as A; import uuid;"
            "A.objects.using('default').create(organization_id=uuid.uuid4(), region='eu')"
        ),
        'relation "billing_billingaccount" does not exist',
    ),
    "billing rows saved in the region's database": (
        (
            "from apps.billing.models import BillingAccount as A; import uuid;"
            "A(organization_id=uuid.uuid4(), region='eu').save(using='default')"
        ),
        'relation "billing_billingaccount" does not exist',
    ),
    "the billing table by SQL": (
        (
            "from django.db import connection as c; c.cursor().execute("
            "'INSERT INTO billing_payment (invoice) VALUES (1)')"
        ),
        'relation "billing_payment" does not exist',
    ),
    "an organization through the billing connection": (
        (
            "from apps.organizations.models import Organization as O;"
            "O.objects.using('billing').create(name='Smuggled')"
        ),
        "permission denied for table organizations_organization",
    ),
    "people read through the billing connection": (
        "from apps.organizations.models import User as U; list(U.objects.using('billing'))",
        "permission denied for table organizations_user",
    ),
    "traces by SQL through the billing connection": (
        (
            "from django.db import connections; connections['billing'].cursor().execute("
            "'SELECT * FROM trace_store_run')"
        ),
        "permission denied for table",
    ),
    "a new table": (
        (
            "from django.db import connections; connections['billing'].cursor().execute("
            "'CREATE TABLE mine (x int)')"
        ),
        "permission denied for schema public",
    ),
    "a payment booked from a region": (
        (
            "from apps.billing.models import BillingAccount as A, Payment as P;"
            "P.objects.create(account=A.objects.first(), invoice='1', amount=1)"
        ),
        "permission denied for table billing_payment",
    ),
    "a deleted account": (
        "from apps.billing.models import BillingAccount as A; A.objects.all().delete()",
        "permission denied for table billing_billingaccount",
    ),
}


ATTEMPT_SCRIPT = """
import json
output = {}
for way, code in json.loads(__CODES__).items():
    try:
        exec(code)
    except Exception as error:
        output[way] = str(error)
print(json.dumps(output))
"""


def test_billing_queries_cannot_bypass_the_router(databases):
    # One attempt deletes accounts, so there must be one.
    create_organization(databases, "eu", "Bypass", then=OPEN_ACCOUNTS)
    counts_before = {region: databases.counts(region) for region in databases.names}
    codes = json.dumps({way: code for way, (code, _) in BYPASS_ATTEMPTS.items()})

    script = ATTEMPT_SCRIPT.replace("__CODES__", repr(codes))
    output = json.loads(databases.shells["eu"].execute(script))

    assert set(output) == set(BYPASS_ATTEMPTS)
    assert [
        way for way, (_, refusal) in BYPASS_ATTEMPTS.items() if refusal not in output[way]
    ] == []
    assert {region: databases.counts(region) for region in databases.names} == counts_before


def test_migrating_the_billing_alias_creates_no_table(databases):
    counts_before = databases.counts("us")

    answer = databases.shells["eu"].run(call("migrate", "database='billing'"))

    assert "permission denied" in answer["error"]
    assert databases.counts("us") == counts_before


def test_region_works_while_billing_is_unreachable(databases):
    environment = databases.environment("eu")
    del environment["BILLING_DATABASE_URL"]
    code = (
        "from apps.organizations.services import get_or_create_organization as setup;"
        "setup(organization_name='Alone', email='a@eu.example');"
        "from apps.billing import services; print(services.open_accounts())"
    )

    completed = subprocess.run(
        [sys.executable, "-W", "ignore", "manage.py", "shell", "--no-imports", "-c", code],
        cwd=BASE_DIR,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (completed.returncode, completed.stdout.strip()) == (0, "0")
