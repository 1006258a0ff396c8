"""`make up REGIONS=us,eu`: two installations under one command that share only billing."""

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
from config.env import BASE_DIR
from tests.installation import Installation, free_port, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("regions")]
PATIENCE_SECONDS = 300


@pytest.fixture
def folder() -> Iterator[Path]:
    # Sockets need a short path, and users of services must be able to traverse the folder.
    path = Path(tempfile.mkdtemp(prefix="slipway-both-"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path)


def list_accounts(us: Installation) -> list[tuple[str, str]]:
    with psycopg.connect(Instance(us.data_dir).database_url) as connection:
        return connection.execute(
            "SELECT organization_id::text, region FROM billing_billingaccount ORDER BY region"
        ).fetchall()


def list_organizations(installation: Installation) -> set[str]:
    with psycopg.connect(Instance(installation.data_dir).database_url) as connection:
        rows = connection.execute("SELECT id::text FROM organizations_organization").fetchall()
    return {pk for (pk,) in rows}


def test_two_regions_on_one_machine_share_only_billing(folder):
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
        for installation in (us, eu):
            wait_until(
                lambda installation=installation: (
                    command.poll() is None and installation.get("/readyz") == 200
                ),  # type: ignore[misc]
                f"{installation.data_dir.name}: {output.read_text()}",
                PATIENCE_SECONDS,
            )

        for name, installation in (("us", us), ("eu", eu)):
            with urllib.request.urlopen(f"{installation.url}/info") as response:
                region_info = json.load(response)["region"]
            urls = dict.fromkeys(("ui_url", "api_url", "beacon_url"), installation.url)
            assert region_info == {"name": name, **urls, "egress": [], "ingress": []}

        arguments = ("--organization", "Europeans", "--email", "owner@eu.example", "--json")
        organization_id = json.loads(eu.manage("bootstrap", *arguments).stdout)["organization_id"]
        wait_until(
            lambda: (organization_id, "eu") in list_accounts(us),
            "the billing account of the new organization",
            120,
        )

        assert organization_id in list_organizations(eu)
        assert organization_id not in list_organizations(us)
        assert list_organizations(us) & list_organizations(eu) == set()
        assert {pk for pk, region in list_accounts(us) if region == "eu"} == list_organizations(eu)
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
    assert [
        p for installation in (us, eu) for p in installation.processes() if p.pid != os.getpid()
    ] == []
