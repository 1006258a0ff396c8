"""What a region announces is what the specification states."""

from __future__ import annotations

import re

import pytest

from apps.core.regions import REGIONS
from config.embedded.launch import CannotStart
from config.env import Env
from config.supervisor import regions
from tests.rate_limits.specification import TEXT

KEPT = {
    "us": (
        """34.59.65.97, 34.67.51.221, 34.46.212.37, 34.132.150.88,
        35.188.222.201, 34.58.194.127, 34.59.97.173, 104.198.162.55""".replace("\n       ", ""),
        "34.8.121.39, 34.107.251.234",
    ),
    "eu": (
        """34.13.192.67, 34.147.105.64, 34.90.22.166, 34.147.36.213,
        34.32.137.113, 34.91.238.184, 35.204.101.241, 35.204.48.32""".replace("\n       ", ""),
        "34.95.92.214, 34.13.73.122",
    ),
}


def stated() -> dict[str, tuple[str, str]]:
    """The two tables of part 1, from the text itself where it is."""
    if not TEXT.exists():
        return KEPT
    part = TEXT.read_text().partition("\n## 1. ")[2].partition("\n## 2. ")[0]
    rows = re.findall(r"^\| (US|EU) \| ([\d., ]+) \|$", part, re.MULTILINE)
    assert [name for name, _ in rows] == ["US", "EU", "US", "EU"]
    return {
        region: (rows[position][1], rows[position + 2][1])
        for position, region in enumerate(("us", "eu"))
    }


@pytest.mark.parametrize("region", ["us", "eu"])
def test_addresses_are_as_stated(region):
    found = REGIONS[region]

    assert (", ".join(found.egress), ", ".join(found.ingress)) == stated()[region]
    assert (", ".join(found.egress), ", ".join(found.ingress)) == KEPT[region]


@pytest.mark.parametrize("region", ["us", "eu"])
def test_info_announces_them(client, db, settings, region):
    settings.REGION = region

    said = client.get("/info").json()["region"]

    assert said == {
        "name": region,
        "egress": list(REGIONS[region].egress),
        "ingress": list(REGIONS[region].ingress),
    }


def test_each_region_has_a_folder_and_a_port_and_only_one_is_told_where_billing_is(tmp_path):
    env = Env(port=8000, data_dir=tmp_path, _env_file=None)

    us, eu = (
        regions.environment(env, name, position, ["us", "eu"])
        for position, name in enumerate(["us", "eu"])
    )

    assert us == {"REGION": "us", "PORT": "8000", "DATA_DIR": str(tmp_path / "us")}
    assert (eu["REGION"], eu["PORT"], eu["DATA_DIR"]) == ("eu", "8001", str(tmp_path / "eu"))
    assert eu["BILLING_DATABASE_URL"].startswith("postgresql://slipway_billing@/slipway?host=")


def test_an_unknown_region_and_a_shared_database_are_refused_in_a_sentence(monkeypatch):
    with pytest.raises(CannotStart, match="unknown region 'mars'"):
        regions.parse("us,mars")
    monkeypatch.setenv("DATABASE_URL", "postgresql://somewhere/slipway")
    with pytest.raises(CannotStart, match="DATABASE_URL applies to one installation"):
        regions.Regions(Env(_env_file=None), ["us", "eu"])
    assert regions.parse(" EU, us,eu ") == ["eu", "us"]
