"""Rules for the URLs of webhooks."""

from __future__ import annotations

import socket
from ipaddress import ip_address
from threading import Event
from uuid import uuid4

import pytest

from apps.agent_server.services import webhooks
from apps.agent_server.services.webhooks import WebhookBlocked
from apps.deployments.routes import Route, ServingConfig
from apps.webhooks import resolution


@pytest.fixture(autouse=True)
def operator_settings(settings):
    settings.ALLOW_PRIVATE_ADDRESSES = False
    settings.ALLOW_LOCAL_WEBHOOKS = True
    return settings


@pytest.fixture
def dns_records(monkeypatch):
    """The addresses that the fake name server returns."""
    records = {"hooks.example": ["93.184.216.34"], "xn--bcher-kva.example": ["93.184.216.34"]}

    def resolve(host, *_, **__):
        try:
            addresses = [str(ip_address(host))]
        except ValueError:
            if host not in records:
                raise socket.gaierror(-2, "unknown") from None
            addresses = records[host]
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (text, 0)) for text in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return records


def make_route(**url) -> Route:
    """A route whose langgraph.json has these rules."""
    serving = ServingConfig.from_revision({"webhooks": {"url": url}} if url else {}, {})
    return Route(uuid4(), uuid4(), uuid4(), "a", "a", uuid4(), {}, False, (), serving=serving)


def rejection_reason(url, **rules) -> str:
    with pytest.raises(WebhookBlocked) as caught:
        webhooks.validate(url, make_route(**rules))
    assert caught.value.status == 422
    return caught.value.detail.removeprefix("Webhook host blocked: ")


@pytest.mark.parametrize(
    "url",
    [
        "https://hooks.example/x",
        "http://hooks.example",
        "https://hooks.example:8443/a/b?c=d&e=%20#f",
        "https://bücher.example/",
        "https://93.184.216.34/",
        "https://[2606:2800:220:1:248:1893:25c8:1946]/",
        "HTTPS://HOOKS.EXAMPLE./",
    ],
)
def test_public_addresses_are_accepted_unchanged(dns_records, url):
    assert webhooks.validate(url, make_route()) == url


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://127.8.9.10:8000/",
        "http://localhost/",
        "http://0.0.0.0/",
        "http://10.0.0.1/",
        "http://172.16.5.4/",
        "http://192.168.1.1/",
        "http://169.254.169.254/latest/meta-data",
        "http://100.64.0.1/",
        "http://224.0.0.1/",
        "http://255.255.255.255/",
        "http://[::1]/",
        "http://[::]/",
        "http://[fd00::1]/",
        "http://[fe80::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:10.0.0.1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[2002:7f00:1::]/",
        "http://inside.example/",
        "http://half.example/",
    ],
)
def test_private_addresses_are_rejected_in_every_notation(dns_records, url):
    dns_records |= {
        "localhost": ["127.0.0.1"],
        "inside.example": ["192.168.0.7"],
        "half.example": ["93.184.216.34", "10.0.0.1"],
    }

    assert rejection_reason(url).endswith("is on this machine or on a private network.")


@pytest.mark.parametrize("url", ["http://2130706433/", "http://0x7f.1/", "http://127.1/"])
def test_unusual_notations_of_loopback_are_rejected(url):
    assert "private network" in rejection_reason(url) or "cannot be resolved" in rejection_reason(
        url
    )


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("https://nowhere.example/", "the host nowhere.example cannot be resolved."),
        ("ftp://hooks.example/", "the address must begin with https:// or http://."),
        ("file:///etc/passwd", "the address must begin with https:// or http://."),
        ("hooks.example/x", "the address must begin with https:// or http://."),
        ("//hooks.example/x", "the address must begin with https:// or http://."),
        ("", "the address must begin with https:// or http://."),
        ("https:///x", "the address has no valid host."),
        ("https://hooks.example:99999/", "the address is not a valid URL."),
        ("https://hooks.example:0/", "port 0 is not allowed."),
        ("https://[::1/", "the address is not a valid URL."),
        ("https://a@hooks.example/", "the address must not contain a user name or password"),
        ("https://hooks.example/\r\nX: y", "the address contains invalid characters."),
        ("https://hooks.example/ x", "the address contains invalid characters."),
        ("https://hooks.example\\@10.0.0.1/", "the address contains invalid characters"),
        ("https://hooks.example/" + "x" * 4096, "the address is longer than 4096 characters."),
        (
            "/hook",
            "an address without a host is a route of this agent; its langgraph.json must allow",
        ),
    ],
)
def test_invalid_url_is_rejected_with_the_reason(dns_records, url, reason):
    assert rejection_reason(url).startswith(reason)


def test_agent_can_require_https(dns_records):
    assert (
        rejection_reason("http://hooks.example/", require_https=True)
        == "this agent requires https."
    )
    assert webhooks.validate("https://hooks.example/", make_route(require_https=True))


def test_agent_can_restrict_domains(dns_records):
    dns_records["a.b.example"] = dns_records["b.example"] = ["93.184.216.34"]
    rules = {"allowed_domains": ["hooks.example", "*.b.example"]}

    for url in ("https://hooks.example/", "https://HOOKS.example./", "https://a.b.example/"):
        assert webhooks.validate(url, make_route(**rules)) == url
    for host in ("b.example", "xhooks.example", "evilb.example"):
        assert rejection_reason(f"https://{host}/", **rules) == (
            f"{host} is not one of the domains that this agent allows."
        )


def test_agent_can_restrict_ports(dns_records):
    rules = {"allowed_ports": [443, 8443]}

    assert webhooks.validate("https://hooks.example/", make_route(**rules))
    assert webhooks.validate("https://hooks.example:8443/", make_route(**rules))
    assert rejection_reason("http://hooks.example/", **rules) == (
        "port 80 is not one of the ports that this agent allows."
    )


def test_agent_can_lower_but_not_raise_the_url_length(dns_records):
    assert "longer than 10 characters" in rejection_reason(
        "https://hooks.example/", max_url_length=10
    )
    assert "longer than 4096" in rejection_reason(
        "https://hooks.example/" + "x" * 5000, max_url_length=9999
    )


def test_agent_can_allow_loopback_if_the_operator_allows_it(operator_settings):
    rules = {"disable_loopback": False}
    assert webhooks.validate("http://127.0.0.1:9/x", make_route(**rules)) == "http://127.0.0.1:9/x"
    assert webhooks.validate("/done?x=1", make_route(**rules)) == "/done?x=1"

    operator_settings.ALLOW_LOCAL_WEBHOOKS = False
    assert "private network" in rejection_reason("http://127.0.0.1:9/x", **rules)
    assert webhooks.validate("/done?x=1", make_route(**rules)) == "/done?x=1"


def test_operator_can_allow_private_addresses_for_all_agents(operator_settings):
    operator_settings.ALLOW_PRIVATE_ADDRESSES = True

    assert webhooks.validate("http://127.0.0.1:9/x", make_route())


@pytest.mark.parametrize("path", ["/../x", "/a/%2e%2e/b", "/a%2f..%2fb", "/.."])
def test_relative_urls_stay_within_the_agent(path):
    assert rejection_reason(path, disable_loopback=False) == (
        "the address leads outside of this agent's routes."
    )


def test_hanging_name_server_times_out(monkeypatch):
    # The thread must have begun: a name that waits for one is accepted.
    monkeypatch.setattr(resolution, "TIMEOUT_SECONDS", 2)
    may_answer = block_name_server(monkeypatch)

    assert rejection_reason("https://slow.example/") == "the host slow.example cannot be resolved."
    may_answer.set()


def block_name_server(monkeypatch):
    answers = Event()

    def resolve_late(*_, **__):
        answers.wait(60)
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", resolve_late)
    return answers
