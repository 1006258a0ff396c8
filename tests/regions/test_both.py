"""`make up REGIONS=us,eu`: two installations under one command, that share billing alone."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from apps.core.instance import BILLING_ROLE, Instance
from apps.core.regions import REGIONS
from config.env import BASE_DIR
from tests.installation import Installation, free_port, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("regions")]
PATIENCE_SECONDS = 300


@pytest.fixture
def folder() -> Iterator[Path]:
    # Sockets need a short path, and the users of services pass through.
    path = Path(tempfile.mkdtemp(prefix="slipway-both-"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path)


def accounts(us: Installation) -> list[tuple[str, str]]:
    with psycopg.connect(Instance(us.data_dir).database_url) as connection:
        return connection.execute(
            "SELECT organization_id::text, region FROM billing_billingaccount ORDER BY region"
        ).fetchall()


def organizations(one: Installation) -> set[str]:
    with psycopg.connect(Instance(one.data_dir).database_url) as connection:
        found = connection.execute("SELECT id::text FROM organizations_organization").fetchall()
    return {pk for (pk,) in found}


def test_both_regions_run_on_one_machine_and_share_billing_alone(folder):
    port = free_port()
    us = Installation(folder / "us", port, REGION="us")
    eu = Installation(folder / "eu", port + 1, REGION="eu")
    eu.variables["BILLING_DATABASE_URL"] = Instance(us.data_dir).billing_url
    environment = us.environment | {"DATA_DIR": str(folder), "PORT": str(port)}
    del environment["REGION"]
    output = folder / "out"
    with output.open("wb") as file:
        command = subprocess.Popen(
            [sys.executable, "-m", "config.supervisor", "--regions", "us,eu"],
            cwd=BASE_DIR,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        for one in (us, eu):
            wait_until(
                lambda one=one: command.poll() is None and one.get("/readyz") == 200,  # type: ignore[misc]
                f"{one.data_dir.name}: {output.read_text()}",
                PATIENCE_SECONDS,
            )

        for name, one in (("us", us), ("eu", eu)):
            with urllib.request.urlopen(f"{one.url}/info") as response:
                said = json.load(response)["region"]
            assert (said["name"], tuple(said["egress"])) == (name, REGIONS[name].egress)

        words = ("--organization", "Europeans", "--email", "owner@eu.example", "--json")
        signed_up = json.loads(eu.manage("bootstrap", *words).stdout)["organization_id"]
        wait_until(lambda: (signed_up, "eu") in accounts(us), "the account of the signed up", 120)

        assert signed_up in organizations(eu)
        assert signed_up not in organizations(us)
        assert organizations(us) & organizations(eu) == set()
        assert {pk for pk, region in accounts(us) if region == "eu"} == organizations(eu)
        with (
            psycopg.connect(Instance(us.data_dir).billing_url) as connection,
            pytest.raises(psycopg.errors.InsufficientPrivilege),
        ):
            connection.execute("SELECT * FROM organizations_organization")
        assert BILLING_ROLE in eu.variables["BILLING_DATABASE_URL"]
    finally:
        command.send_signal(signal.SIGTERM)
        status = command.wait(90)
    assert status == 0, output.read_text()
    assert [p for one in (us, eu) for p in one.processes() if p.pid != os.getpid()] == []
