"""The Host header chooses neither the links in mails nor what is served."""

from __future__ import annotations

import re
import socketserver
import threading

import httpx
import pytest
import redis
from django.core.cache import cache
from django.core.checks import run_checks
from django.test import Client
from django.utils import timezone

from apps.core.instance import Instance
from apps.organizations.models import User
from config.env import Env
from tests.installation import Installation

# One worker of pytest-xdist, so that the installation starts once.
pytestmark = pytest.mark.xdist_group("hosts")

PUBLIC_URL = "http://slipway.example"
FORGED = {
    "Host": {"Host": "attacker.example"},
    "Host with the public name as its port": {"Host": "attacker.example:slipway.example"},
    "Host below the public name": {"Host": "attacker.slipway.example"},
    "X-Forwarded-Host": {"Host": "slipway.example", "X-Forwarded-Host": "attacker.example"},
    "X-Forwarded-Server": {"Host": "slipway.example", "X-Forwarded-Server": "attacker.example"},
    "Forwarded": {"Host": "slipway.example", "Forwarded": "host=attacker.example"},
    "another served host": {"Host": "localhost:1234"},
}
PAGES = (
    "/",
    "/sign-in",
    "/sign-up",
    "/account/password/reset",
    "/info",
    "/admin/",
    "/no-such-page",
)


class _MailHandler(socketserver.StreamRequestHandler):
    """The part of SMTP that Django's mail backend speaks."""

    def handle(self) -> None:
        self._answer("220 mail.example")
        while command := self.rfile.readline().decode().strip().upper():
            if command == "DATA":
                self._answer("354 go on")
                lines = iter(self.rfile.readline, b".\r\n")
                self.server.mails.append(b"".join(lines).decode())
                self._answer("250 accepted")
            elif command == "QUIT":
                self._answer("221 closed")
                return
            else:
                self._answer("250 accepted")

    def _answer(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())


class MailServer(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _MailHandler)
        self.mails: list[str] = []

    @property
    def url(self) -> str:
        return f"smtp://127.0.0.1:{self.server_address[1]}"


@pytest.fixture(scope="module")
def mail_server():
    with MailServer() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(scope="module")
def public(tmp_path_factory, mail_server):
    """A live installation with a public address, a mail server and one user."""
    installation = Installation(
        tmp_path_factory.mktemp("public") / "data",
        PUBLIC_URL=PUBLIC_URL,
        EMAIL_URL=mail_server.url,
        SAMPLE_AGENT="false",
        WARM_GRAPH_HOSTS="0",
    )
    installation.start()
    installation.wait_until_ready()
    installation.manage("shell", "-c", _CREATE)
    yield installation
    assert installation.stop() == 0


_CREATE = """
from django.utils import timezone
from apps.organizations.models import User
User.objects.create_user(
    "ada@example.com", "a long and odd password", email_verified_at=timezone.now()
)
"""


def clear_cache(installation: Installation) -> None:
    """Delete the counts of mails, as `cache.clear()` does."""
    with redis.Redis.from_url(Instance(installation.data_dir).redis_url) as client:
        client.flushdb()


def origins_of_links(text: str) -> list[str]:
    return re.findall(r"https?://[^/\s]+", text)


@pytest.mark.integration
def test_no_forged_host_gets_into_a_link_of_a_mail(public, mail_server):
    statuses = {}
    for name, headers in FORGED.items():
        with httpx.Client(base_url=public.url, headers=headers, timeout=60) as browser:
            before = len(mail_server.mails)
            browser.get("/account/password/reset")
            token = browser.cookies.get("slipway_csrf", "")
            body = {"email": "ada@example.com", "csrfmiddlewaretoken": token}
            response = browser.post("/account/password/reset", data=body)
            statuses[name] = response.status_code, len(mail_server.mails) - before
        clear_cache(public)

    assert statuses == {
        "Host": (400, 0),
        "Host with the public name as its port": (400, 0),
        "Host below the public name": (400, 0),
        "X-Forwarded-Host": (302, 1),
        "X-Forwarded-Server": (302, 1),
        "Forwarded": (302, 1),
        "another served host": (302, 1),
    }
    assert len(mail_server.mails) == 4
    for mail in mail_server.mails:
        assert "attacker" not in mail
        assert "localhost:1234" not in mail
        assert origins_of_links(mail) == [PUBLIC_URL]


@pytest.mark.integration
def test_other_hosts_are_refused_and_probes_are_answered(public):
    with httpx.Client(base_url=public.url, headers={"Host": "10.1.2.3:8000"}, timeout=60) as probe:
        refused = {path: probe.get(path).status_code for path in PAGES}
        token = (public.data_dir / "secrets/metrics_token").read_text().strip()
        bearer = {"Authorization": f"Bearer {token}"}
        answered = [
            probe.get(path, headers=bearer).status_code
            for path in ("/healthz", "/readyz", "/metrics")
        ]
        error = probe.get("/info").json()

    assert refused == dict.fromkeys(PAGES, 400)
    assert 400 not in answered
    assert error["code"] == "bad_request"


@pytest.mark.integration
def test_an_installation_without_the_sample_agent_deploys_none(public):
    public.wait_until_output_contains("Slipway is ready")
    key = public.bootstrap()["api_key"]

    response = httpx.get(
        f"{public.url}/v2/deployments",
        headers={
            "Host": f"127.0.0.1:{public.port}",
            "X-Api-Key": key,
        },
        timeout=60,
    )

    assert (response.status_code, response.json()["resources"]) == (200, [])
    assert "sample" not in public.read_output()


@pytest.mark.integration
def test_agents_and_clients_on_this_machine_are_served(public):
    key = public.bootstrap()["api_key"]
    for host in ("slipway.example", f"127.0.0.1:{public.port}", f"localhost:{public.port}"):
        response = httpx.get(
            f"{public.url}/sessions", headers={"Host": host, "X-Api-Key": key}, timeout=60
        )

        assert response.status_code == 200, (host, response.text)


@pytest.fixture
def mail(settings, mailoutbox):
    settings.BASE_URL = "https://slipway.example"
    settings.EMAIL_HOST = "mail.example"
    settings.ACCOUNT_EMAIL_VERIFICATION = "mandatory"
    settings.SIGN_UP = True
    settings.ALLOWED_HOSTS = ["*"]
    cache.clear()  # it has the rate limits of emails
    return mailoutbox


@pytest.mark.django_db
def test_each_mail_of_an_account_links_to_the_public_url(mail):
    User.objects.create_user("ada@example.com", "a long password", email_verified_at=timezone.now())
    browser = Client(headers={"Host": "attacker.example"})

    browser.post("/account/password/reset", {"email": "ada@example.com"})
    browser.post("/sign-up", {"email": "ada@example.com", "password1": "a long and odd password"})
    browser.post("/sign-up", {"email": "bob@example.com", "password1": "a long and odd password"})
    browser.post("/account/password/reset", {"email": "eve@example.com"})

    assert len(mail) == 3
    for message in mail:
        assert "attacker.example" not in message.subject + message.body
        assert origins_of_links(message.body) == ["https://slipway.example"]


@pytest.mark.parametrize(
    ("variables", "hosts"),
    [
        ({}, ["*"]),
        ({"public_url": "https://Slipway.example:8443/"}, ["slipway.example"]),
        (
            {"public_url": "https://a.example", "internal_url": "http://web:8000"},
            ["a.example", "web"],
        ),
        (
            {"public_url": "https://a.example", "agent_domain": "agents.example"},
            ["a.example", ".agents.example"],
        ),
        ({"public_url": "http://[fd00::1]:8000"}, ["[fd00::1]"]),
        ({"public_url": "https://a.example", "allowed_hosts": "b.example, .c.example"}, None),
    ],
)
def test_served_hosts_follow_from_the_public_url(monkeypatch, variables, hosts):
    for name in ("PUBLIC_URL", "INTERNAL_URL", "ALLOWED_HOSTS", "AGENT_DOMAIN"):
        monkeypatch.delenv(name, raising=False)
    derived = Env(**variables).hosts
    loopback = ["localhost", "127.0.0.1", "[::1]"]

    if hosts is None:
        assert derived == ["b.example", ".c.example"]
    elif hosts == ["*"]:
        assert derived == ["*"]
    else:
        assert derived[0] == hosts[0]
        assert set(derived) == {*hosts, *loopback}


@pytest.mark.parametrize(("hosts", "ids"), [(["*"], ["core.E003"]), (["slipway.example"], [])])
def test_deploy_check_refuses_every_host(settings, hosts, ids):
    settings.ALLOWED_HOSTS = hosts

    messages = run_checks(include_deployment_checks=True, tags=["security"])

    assert [message.id for message in messages if message.id == "core.E003"] == ids


@pytest.mark.parametrize(
    ("base_url", "host", "ids"),
    [
        ("http://127.0.0.1:8000", "mail.example", ["core.W001"]),
        ("http://127.0.0.1:8000", "", []),
        ("https://slipway.example", "mail.example", []),
    ],
)
def test_check_warns_about_mail_without_a_public_url(settings, base_url, host, ids):
    settings.BASE_URL, settings.EMAIL_HOST = base_url, host

    messages = run_checks(tags=["urls"])

    assert [message.id for message in messages if message.id == "core.W001"] == ids
