"""The regions of an installation, and the addresses that it announces."""

from __future__ import annotations

import pytest

from config.embedded.launch import CannotStart
from config.env import Env
from config.supervisor import regions


@pytest.mark.parametrize("region", ["us", "eu"])
def test_info_announces_only_the_addresses_that_the_operator_configured(
    client, db, settings, region
):
    settings.REGION = region
    assert client.get("/info").json()["region"] == {"name": region, "egress": [], "ingress": []}

    settings.ANNOUNCED_ADDRESSES = Env(
        egress_addresses="203.0.113.7, 198.51.100.0/29", ingress_addresses="2001:db8::1"
    ).announced_addresses

    assert client.get("/info").json()["region"] == {
        "name": region,
        "egress": ["203.0.113.7", "198.51.100.0/29"],
        "ingress": ["2001:db8::1"],
    }


@pytest.mark.parametrize("value", ["203.0.113", "203.0.113.7/24", "example.com"])
def test_an_invalid_announced_address_is_an_error(value):
    with pytest.raises(ValueError, match=value):
        _ = Env(egress_addresses=value).announced_addresses


def test_each_region_has_its_folder_and_port_and_only_the_second_a_billing_url(tmp_path):
    env = Env(port=8000, data_dir=tmp_path, _env_file=None)

    us, eu = (
        regions.environment(env, name, position, ["us", "eu"])
        for position, name in enumerate(["us", "eu"])
    )

    assert us == {"REGION": "us", "PORT": "8000", "DATA_DIR": str(tmp_path / "us")}
    assert (eu["REGION"], eu["PORT"], eu["DATA_DIR"]) == ("eu", "8001", str(tmp_path / "eu"))
    assert eu["BILLING_DATABASE_URL"].startswith("postgresql://slipway_billing@/slipway?host=")


def test_an_unknown_region_and_a_shared_database_are_refused(monkeypatch):
    with pytest.raises(CannotStart, match="unknown region 'mars'"):
        regions.parse("us,mars")
    monkeypatch.setenv("DATABASE_URL", "postgresql://somewhere/slipway")
    with pytest.raises(CannotStart, match="DATABASE_URL applies to one installation"):
        regions.Regions(Env(_env_file=None), ["us", "eu"])
    assert regions.parse(" EU, us,eu ") == ["eu", "us"]
