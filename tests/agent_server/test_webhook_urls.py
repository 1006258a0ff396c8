"""Which addresses webhooks may go to."""

from __future__ import annotations

import socket
from ipaddress import ip_address
from uuid import uuid4

import pytest

from apps.agent_server.services import webhooks
from apps.agent_server.services.webhooks import WebhookBlocked
from apps.core import ssrf
from apps.deployments.routes import Route
from apps.deployments.serving_config import ServingConfig


@pytest.fixture(autouse=True)
def operator(settings):
    settings.ALLOW_PRIVATE_ADDRESSES = False
    settings.ALLOW_LOCAL_WEBHOOKS = True
    return settings


@pytest.fixture
def names(monkeypatch):
    """What the name server says."""
    known = {"hooks.example": ["93.184.216.34"], "xn--bcher-kva.example": ["93.184.216.34"]}

    def look_up(host, *_, **__):
        try:
            found = [str(ip_address(host))]
        except ValueError:
            if host not in known:
                raise socket.gaierror(-2, "unknown") from None
            found = known[host]
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (text, 0)) for text in found]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return known


def agent(**url) -> Route:
    """A route whose langgraph.json has these rules."""
    serving = ServingConfig.from_revision({"webhooks": {"url": url}} if url else {}, {})
    return Route(uuid4(), uuid4(), uuid4(), "a", "a", uuid4(), {}, False, (), serving=serving)


def refused(url, **rules) -> str:
    with pytest.raises(WebhookBlocked) as caught:
        webhooks.validate(url, agent(**rules))
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
def test_public_addresses_are_accepted_unchanged(names, url):
    assert webhooks.validate(url, agent()) == url


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
def test_private_addresses_are_rejected_in_every_notation(names, url):
    names |= {
        "localhost": ["127.0.0.1"],
        "inside.example": ["192.168.0.7"],
        "half.example": ["93.184.216.34", "10.0.0.1"],
    }

    assert refused(url).endswith("is on this machine or on a private network.")


@pytest.mark.parametrize("url", ["http://2130706433/", "http://0x7f.1/", "http://127.1/"])
def test_unusual_notations_of_loopback_are_rejected(url):
    assert "private network" in refused(url) or "is not known" in refused(url)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("https://nowhere.example/", "the host nowhere.example is not known."),
        ("ftp://hooks.example/", "the address must begin with https:// or http://."),
        ("file:///etc/passwd", "the address must begin with https:// or http://."),
        ("hooks.example/x", "the address must begin with https:// or http://."),
        ("//hooks.example/x", "the address must begin with https:// or http://."),
        ("", "the address must begin with https:// or http://."),
        ("https:///x", "the address names no host."),
        ("https://hooks.example:99999/", "this is not an address."),
        ("https://hooks.example:0/", "there is no port 0."),
        ("https://[::1/", "this is not an address."),
        ("https://a@hooks.example/", "an address with a user name or password would be shown"),
        ("https://hooks.example/\r\nX: y", "the address has characters that no address has."),
        ("https://hooks.example/ x", "the address has characters that no address has."),
        ("https://hooks.example\\@10.0.0.1/", "the address has characters"),
        ("https://hooks.example/" + "x" * 4096, "the address is longer than 4096 characters."),
        ("/hook", "an address without a host is a route of this agent, which is refused"),
    ],
)
def test_invalid_url_is_rejected_with_the_reason(names, url, reason):
    assert refused(url).startswith(reason)


def test_agent_can_require_https(names):
    assert refused("http://hooks.example/", require_https=True) == "this agent's rules want https."
    assert webhooks.validate("https://hooks.example/", agent(require_https=True))


def test_agent_can_restrict_domains(names):
    names["a.b.example"] = names["b.example"] = ["93.184.216.34"]
    rules = {"allowed_domains": ["hooks.example", "*.b.example"]}

    for url in ("https://hooks.example/", "https://HOOKS.example./", "https://a.b.example/"):
        assert webhooks.validate(url, agent(**rules)) == url
    for host in ("b.example", "xhooks.example", "evilb.example"):
        assert refused(f"https://{host}/", **rules) == (
            f"{host} is not among the domains that this agent allows."
        )


def test_agent_can_restrict_ports(names):
    rules = {"allowed_ports": [443, 8443]}

    assert webhooks.validate("https://hooks.example/", agent(**rules))
    assert webhooks.validate("https://hooks.example:8443/", agent(**rules))
    assert refused("http://hooks.example/", **rules) == (
        "port 80 is not among those that this agent allows."
    )


def test_agent_can_lower_but_not_raise_the_url_length(names):
    assert "longer than 10 characters" in refused("https://hooks.example/", max_url_length=10)
    assert "longer than 4096" in refused("https://hooks.example/" + "x" * 5000, max_url_length=9999)


def test_agent_can_allow_loopback_if_the_operator_allows_it(operator):
    rules = {"disable_loopback": False}
    assert webhooks.validate("http://127.0.0.1:9/x", agent(**rules)) == "http://127.0.0.1:9/x"
    assert webhooks.validate("/done?x=1", agent(**rules)) == "/done?x=1"

    operator.ALLOW_LOCAL_WEBHOOKS = False
    assert "private network" in refused("http://127.0.0.1:9/x", **rules)
    assert webhooks.validate("/done?x=1", agent(**rules)) == "/done?x=1"


def test_operator_can_allow_private_addresses_for_all_agents(operator):
    operator.ALLOW_PRIVATE_ADDRESSES = True

    assert webhooks.validate("http://127.0.0.1:9/x", agent())


@pytest.mark.parametrize("path", ["/../x", "/a/%2e%2e/b", "/a%2f..%2fb", "/.."])
def test_relative_urls_stay_within_the_agent(path):
    assert refused(path, disable_loopback=False) == (
        "the address leads out of this agent's routes."
    )


def test_hanging_name_server_times_out(monkeypatch):
    monkeypatch.setattr(ssrf, "RESOLVE_TIMEOUT_SECONDS", 0.05)
    answers = threading_event_wait(monkeypatch)

    assert refused("https://slow.example/") == "the host slow.example is not known."
    answers.set()


def threading_event_wait(monkeypatch):
    from threading import Event

    answers = Event()

    def look_up(*_, **__):
        answers.wait(10)
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return answers
