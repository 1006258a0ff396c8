"""Billing records of a region lie in the US database; the router cannot be got around.

The EU here is an installation of its own, as far as databases go: commands in processes with its
settings, its own database, and the US database under the role that other regions have.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from apps.core.instance import BILLING_ROLE
from config.env import BASE_DIR

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("regions")]

BILLING = {"billing_billingaccount", "billing_payment"}


class Databases:
    """The two regions' databases in the tests' server."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self._parts = folder, urlsplit(url)
        worker = os.environ.get("PYTEST_XDIST_WORKER", "gw")
        self.names = {"us": f"region_us_{worker}", "eu": f"region_eu_{worker}"}

    def url(self, region: str, role: str | None = None) -> str:
        host = self._parts.netloc
        if role is not None:
            host = f"{role}@{host.rpartition('@')[2]}"
        query = f"?{self._parts.query}" if self._parts.query else ""
        return f"postgresql://{host}/{self.names[region]}{query}"

    def environment(self, region: str) -> dict[str, str]:
        folder = self.folder / region
        folder.mkdir(exist_ok=True)
        databases_ = {
            **os.environ,
            "DATABASE_URL": self.url(region),
            "DATA_DIR": str(folder),
            "REGION": region,
        }
        if region == "eu":
            databases_["BILLING_DATABASE_URL"] = self.url("us", BILLING_ROLE)
        return databases_

    def manage(self, region: str, *words: str, check: bool = True) -> str:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "manage.py", *words],
            cwd=BASE_DIR,
            env=self.environment(region),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert not check or done.returncode == 0, done.stderr
        return done.stdout if done.returncode == 0 else done.stderr

    def shell(self, region: str, code: str) -> str:
        """What code prints in a process of that region; of a failure, what was output last."""
        output = self.manage(region, "shell", "--no-imports", "-c", code, check=False)
        return output.strip().splitlines()[-1] if output.strip() else ""

    def counts(self, region: str) -> dict[str, int]:
        """How many rows each table has."""
        with psycopg.connect(self.url(region)) as connection:
            names = connection.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1"
            ).fetchall()
            return {
                name: connection.execute(  # type: ignore[index]
                    sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(name))
                ).fetchone()[0]
                for (name,) in names
            }


@pytest.fixture(scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Databases]:
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
            # Embedded servers have it; of another, the tests' own user must be allowed to.
            connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(BILLING_ROLE)))
        for name in databases_.names.values():
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        for region in databases_.names:
            databases_.manage(region, "migrate", "--verbosity", "0")
        databases_.manage("us", "billing_access")
        yield databases_
        drop()


def found_organization(databases: Databases, region: str, name: str) -> str:
    words = ("--organization", name, "--email", f"owner@{region}.example", "--json")
    organization_id: str = json.loads(databases.manage(region, "bootstrap", *words))[
        "organization_id"
    ]
    return organization_id


def test_a_region_has_no_tables_for_billing_and_the_us_has(databases):
    assert set(databases.counts("us")) - set(databases.counts("eu")) == BILLING
    assert set(databases.counts("eu")) - set(databases.counts("us")) == set()


def test_sign_up_in_a_region_writes_only_billing_to_the_us(databases):
    # What the tests before this one founded gets its accounts now.
    databases.shell("eu", "from apps.billing import services; services.open_accounts()")
    before = databases.counts("us")

    organization_id = found_organization(databases, "eu", "Europeans")
    databases.shell("eu", "from apps.billing import services; services.open_accounts()")
    databases.shell("eu", "from apps.billing import services; services.open_accounts()")

    after = databases.counts("us")
    changed = {name: after[name] - before[name] for name in after if after[name] != before[name]}
    assert changed == {"billing_billingaccount": 1}
    with psycopg.connect(databases.url("us")) as connection:
        rows = connection.execute(
            "SELECT region, name, email FROM billing_billingaccount WHERE organization_id = %s",
            [organization_id],
        ).fetchall()
    assert rows == [("eu", "", "")]


def test_sign_up_in_the_us_writes_nothing_to_the_region(databases):
    before = databases.counts("eu")

    found_organization(databases, "us", "Americans")
    databases.shell("us", "from apps.billing import services; services.open_accounts()")

    assert databases.counts("eu") == before


AROUND = {
    "billing's rows by the region's own database": (
        (
            "from apps.billing.models import BillingAccount as A; import uuid;"
            "A.objects.using('default').create(organization_id=uuid.uuid4(), region='eu')"
        ),
        'relation "billing_billingaccount" does not exist',
    ),
    "billing's rows saved there": (
        (
            "from apps.billing.models import BillingAccount as A; import uuid;"
            "A(organization_id=uuid.uuid4(), region='eu').save(using='default')"
        ),
        'relation "billing_billingaccount" does not exist',
    ),
    "billing's table by SQL": (
        (
            "from django.db import connection as c; c.cursor().execute("
            "'INSERT INTO billing_payment (invoice) VALUES (1)')"
        ),
        'relation "billing_payment" does not exist',
    ),
    "an organization through billing's door": (
        (
            "from apps.organizations.models import Organization as O;"
            "O.objects.using('billing').create(name='Smuggled')"
        ),
        "permission denied for table organizations_organization",
    ),
    "people read through billing's door": (
        "from apps.organizations.models import User as U; list(U.objects.using('billing'))",
        "permission denied for table organizations_user",
    ),
    "traces by SQL through billing's door": (
        (
            "from django.db import connections; connections['billing'].cursor().execute("
            "'SELECT * FROM trace_store_run')"
        ),
        "permission denied for table",
    ),
    "a table of one's own": (
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
    "an account taken away": (
        "from apps.billing.models import BillingAccount as A; A.objects.all().delete()",
        "permission denied for table billing_billingaccount",
    ),
}


TRYING = """
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
    # Without an account there would be none to take away.
    found_organization(databases, "eu", "Walled in")
    databases.shell("eu", "from apps.billing import services; services.open_accounts()")
    before = {region: databases.counts(region) for region in databases.names}
    codes = json.dumps({way: code for way, (code, _) in AROUND.items()})

    output = json.loads(databases.shell("eu", TRYING.replace("__CODES__", repr(codes))))

    assert set(output) == set(AROUND)
    assert [way for way, (_, refusal) in AROUND.items() if refusal not in output[way]] == []
    assert {region: databases.counts(region) for region in databases.names} == before


def test_migrating_the_billing_alias_creates_no_table(databases):
    before = databases.counts("us")

    output = databases.manage("eu", "migrate", "--database", "billing", check=False)

    assert "permission denied" in output
    assert databases.counts("us") == before


def test_region_works_while_billing_is_unreachable(databases):
    environment = databases.environment("eu")
    del environment["BILLING_DATABASE_URL"]
    code = (
        "from apps.organizations.services import get_or_create_organization as setup;"
        "setup(organization_name='Alone', email='a@eu.example');"
        "from apps.billing import services; print(services.open_accounts())"
    )

    done = subprocess.run(
        [sys.executable, "-W", "ignore", "manage.py", "shell", "--no-imports", "-c", code],
        cwd=BASE_DIR,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout.strip()) == (0, "0")
