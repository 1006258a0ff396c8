"""What agents, builds and clones may reach by the settings, besides public addresses."""

import pytest

from apps.deployments import networks
from apps.deployments.sandbox import Forward, Network
from config.env import Env


@pytest.fixture(autouse=True)
def operator_settings(settings):
    settings.INTERNAL_URL = settings.BASE_URL = "http://127.0.0.1:8123"
    settings.EGRESS_NETWORKS = ("10.1.0.0/16",)
    settings.ALLOW_PRIVATE_ADDRESSES = False
    settings.AGENT_NETWORK = "proxied"
    return settings


def test_agents_reach_a_platform_at_the_loopback_address_by_a_forward():
    egress = networks.agent_egress()

    assert egress.forwards == (Forward(port=8123, host="127.0.0.1", host_port=8123),)
    assert egress.networks == ("10.1.0.0/16",)
    assert egress.has_own_servers
    assert not egress.uses_operator_proxy


def test_agents_reach_a_platform_at_another_address_by_its_name(operator_settings):
    operator_settings.INTERNAL_URL = "http://web:8000"
    operator_settings.BASE_URL = "https://slipway.example"

    egress = networks.agent_egress()

    assert egress.hosts == (("web", 8000), ("slipway.example", 443))
    assert egress.forwards == ()


def test_builds_reach_the_package_indexes_of_the_operator():
    urls = (
        "https://packages.example/simple",
        "http://10.2.0.1:3141/root",
        "https://[not-an-address/",
    )

    egress = networks.build_egress(urls)

    assert egress.hosts == (("packages.example", 443), ("10.2.0.1", 3141))
    assert egress.networks == ("10.1.0.0/16",)


def test_clones_reach_private_servers_where_the_operator_allows_them(operator_settings):
    assert networks.clone_egress().networks == ("10.1.0.0/16",)

    operator_settings.ALLOW_PRIVATE_ADDRESSES = True

    assert networks.clone_egress().networks == ("10.1.0.0/16", "0.0.0.0/0", "::/0")


@pytest.mark.parametrize(("value", "kind"), [("proxied", "PROXIED"), ("shared", "SHARED")])
def test_operator_selects_the_kind_of_network(operator_settings, value, kind):
    operator_settings.AGENT_NETWORK = value

    assert networks.network() is Network[kind]


def test_a_network_setting_that_is_not_a_network_is_an_error():
    assert Env(egress_networks="10.1.2.3/16, fd00::/8").allowed_egress == (  # type: ignore[call-arg]
        "10.1.0.0/16",
        "fd00::/8",
    )
    with pytest.raises(ValueError, match="everywhere"):
        Env(egress_networks="everywhere").allowed_egress  # type: ignore[call-arg]  # noqa: B018
