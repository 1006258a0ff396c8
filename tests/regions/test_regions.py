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
    urls = {
        "ui_url": "https://eu.example",
        "api_url": "https://api.eu.example",
        "beacon_url": "https://beacon.eu.example",
    }
    settings.BASE_URL, settings.API_BASE_URL, settings.BEACON_BASE_URL = urls.values()
    assert client.get("/info").json()["region"] == {
        "name": region, **urls, "egress": [], "ingress": [],
    }  # fmt: skip

    settings.ANNOUNCED_ADDRESSES = Env(
        egress_addresses="203.0.113.7, 198.51.100.0/29", ingress_addresses="2001:db8::1"
    ).announced_addresses

    assert client.get("/info").json()["region"] == {
        "name": region,
        **urls,
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


def test_public_addresses_default_to_one_another_and_are_allowed_hosts():
    one = Env(public_url="https://app.example", _env_file=None)
    three = Env(
        public_url="https://app.example", public_api_url="https://api.example/",
        public_beacon_url="https://beacon.example", _env_file=None,
    )  # fmt: skip

    assert (one.api_base_url, one.beacon_base_url) == ("https://app.example",) * 2
    assert Env(public_api_url="https://api.example", _env_file=None).beacon_base_url == (
        "https://api.example"
    )
    assert (three.api_base_url, three.beacon_base_url) == (
        "https://api.example",
        "https://beacon.example",
    )
    assert set(three.hosts) >= {"app.example", "api.example", "beacon.example"}


@pytest.fixture
def three_hosts(settings):
    settings.BASE_URL = "https://app.example"
    settings.API_BASE_URL = "https://api.example"
    settings.BEACON_BASE_URL = "https://beacon.example"
    settings.ALLOWED_HOSTS = ["app.example", "api.example", "beacon.example"]


@pytest.mark.parametrize(
    ("host", "path", "status"),
    [
        ("app.example", "/sign-in", 200),
        ("app.example", "/api/v1/info", 200),
        ("app.example", "/v1/beacon/verify", 405),
        ("api.example", "/info", 200),
        ("api.example", "/api/v1/sessions", 401),
        ("api.example", "/v1/beacon/verify", 405),
        ("api.example", "/sign-in", 301),
        ("API.example", "/o/1/projects?a=b", 301),
        ("beacon.example", "/v1/beacon/verify", 405),
        ("beacon.example", "/any/v1/metadata/submit", 405),
        ("beacon.example", "/info", 200),
        ("beacon.example", "/sessions", 404),
        ("beacon.example", "/sign-in", 404),
        ("other.example", "/info", 400),
    ],
)
@pytest.mark.usefixtures("db", "three_hosts")
def test_each_host_serves_its_paths(client, host, path, status):
    response = client.get(path, headers={"Host": host})

    assert response.status_code == status, response.content
    if status == 301:
        assert response["Location"] == f"https://app.example{path}"


def test_forms_are_not_accepted_on_the_host_of_the_apis(client, db, three_hosts):
    assert client.post("/sign-in", headers={"Host": "api.example"}).status_code == 404
