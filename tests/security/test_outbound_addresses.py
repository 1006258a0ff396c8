"""Every outbound path that a tenant can aim refuses addresses inside the platform's network.

Each path gets the whole list. docs/security.md has the number of refused attempts of each path.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from uuid import uuid4

import botocore.endpoint
import pytest
from django.utils import timezone

from apps.agent_server.webhooks import rules as agent_rules
from apps.core.callers import Caller
from apps.core.errors import AppError
from apps.datasets.models import ExampleRevision
from apps.deployments.builds.build_context import BuildFailed
from apps.deployments.builds.clone import check_address
from apps.deployments.routes import Route, ServingConfig
from apps.deployments.sandbox.egress import connections
from apps.deployments.sandbox.egress.rules import Rules
from apps.evaluators.models import Evaluation, Evaluator
from apps.evaluators.services import evaluations
from apps.exports import writers
from apps.exports.errors import WriteFailed
from apps.exports.models import Destination
from apps.organizations.services.workspaces import set_secrets
from apps.playground.services.tool_calls import ToolCallBody, call_tool, prepare_tool_call
from apps.prompts.models import WebhookEvent
from apps.prompts.services import webhooks as prompt_webhooks
from apps.webhooks import delivery_queue, delivery_request, dispatch
from apps.webhooks.delivery_request import DeliveryResult, WebhookRequest
from config.env import BASE_DIR
from tests.evaluators.conftest import add_run, create_rule, experiment, forget_partitions
from tests.evaluators.conftest import dataset as evaluated_dataset
from tests.factories.evaluators import structured
from tests.factories.prompts import create_commit, create_prompt
from tests.factories.tracing import ProjectFactory
from tests.providers.conftest import collect, prepare, provider
from tests.tracing.conftest import api, make_api, objects

__all__ = ["api", "experiment", "forget_partitions", "make_api", "objects", "prepare", "provider"]
pytestmark = pytest.mark.django_db
dataset = evaluated_dataset

PUBLIC = "93.184.216.34"
IPV4 = [
    "127.0.0.1", "127.255.255.254", "0.0.0.0", "0.1.2.3", "10.0.0.1", "172.16.0.1",
    "172.31.255.255", "192.168.0.1", "100.64.0.1", "198.18.0.1", "224.0.0.1", "240.0.0.1",
    "255.255.255.255",
]  # fmt: skip
METADATA = [
    "169.254.169.254", "169.254.170.2", "100.100.100.200", "192.0.0.192", "[fd00:ec2::254]",
    "metadata.google.internal", "metadata.google.internal.",
]  # fmt: skip
SPELLINGS = [
    "2130706433", "017700000001", "0x7f000001", "0177.0.0.1", "0x7f.0.0.1", "127.1", "127.0.1",
    "0", "10.1", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376",
]  # fmt: skip
IPV6 = [
    "[::1]", "[0:0:0:0:0:0:0:1]", "[::]", "[fc00::1]", "[fe80::1]", "[fec0::1]", "[ff02::1]",
    "[100::1]",
]  # fmt: skip
EMBEDDED = [
    "[::ffff:127.0.0.1]", "[::ffff:a9fe:a9fe]", "[::ffff:0:7f00:1]", "[::7f00:1]",
    "[64:ff9b::7f00:1]", "[64:ff9b::a9fe:a9fe]", "[64:ff9b:1::a00:1]", "[2002:7f00:1::]",
    "[2002:a9fe:a9fe::1]", "[2001:0:7f00:1::1]",
]  # fmt: skip
DOTS = [
    "127.0.0.1.", "169.254.169.254.", "localhost.",
    # Other dots and digits that IDNA maps to those of ASCII: ideographic, full-width, in circles.
    "127\u30020\u30020\u30021", "127\uff0e0\uff0e0\uff0e1", "127\uff610\uff610\uff611",
    "\uff11\uff12\uff17.\uff10.\uff10.\uff11", "\u2460\u2461\u2466.\u24ea.\u24ea.\u2460",
    "localhost\u3002", "\u24db\u24de\u24d2\u24d0\u24db\u24d7\u24de\u24e2\u24e3",
]  # fmt: skip
REBINDING = "rebinding.attack"
RECORDS = {
    "localhost": [["127.0.0.1"]],
    "metadata.google.internal": [["169.254.169.254"]],
    "private.attack": [["10.0.0.1"]],
    "loopback.attack": [["::1"]],
    "mapped.attack": [["::ffff:10.0.0.1"]],
    "nat64.attack": [["64:ff9b::a9fe:a9fe"]],
    "mixed.attack": [[PUBLIC, "127.0.0.1"]],
    REBINDING: [[PUBLIC], ["127.0.0.1"]],
}
"""What the name server answers, in turn; the last answer repeats."""
NAMES = [name for name in RECORDS if name != "metadata.google.internal"] + ["LOCALHOST"]
HOSTS = [*IPV4, *METADATA, *SPELLINGS, *IPV6, *EMBEDDED, *DOTS, *NAMES]
USERINFO = [
    f"http://{PUBLIC}@127.0.0.1/a", "http://user:pass@127.0.0.1/a",
    f"http://{PUBLIC}%40@10.0.0.1/a", f"http://127.0.0.1\\@{PUBLIC}/a",
    f"http://{PUBLIC}\\@127.0.0.1/a", f"http://[::1]/a#@{PUBLIC}/a",
]  # fmt: skip
SCHEMES = ["file:///etc/passwd", "gopher://127.0.0.1:6379/_FLUSHALL", "ftp://127.0.0.1/a"]
URLS = [*(f"http://{host}/a" for host in HOSTS), *USERINFO, *SCHEMES]
RULE = {
    "name": "Errors", "attribute": "error_count", "aggregation": "count", "window_minutes": 15,
    "threshold": 1,
}  # fmt: skip
_PORTS = {22, 80, 443, 9418}
"""Ports of the attempts. Those of the test's own services are others."""


class Network:
    """A name server, and a network in which no server answers; records who is connected to."""

    def __init__(self) -> None:
        self.connected: list[str] = []
        self._answers: dict[str, Iterator[list[str]]] = {}
        self._resolve, self._connect = socket.getaddrinfo, socket.socket.connect

    def forget(self) -> None:
        self.connected.clear()
        self._answers.clear()

    def getaddrinfo(self, host: Any, port: Any, *arguments: Any, **options: Any) -> Any:
        try:
            name = (host if isinstance(host, str) else host.decode()).encode("idna").decode()
        except UnicodeError:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known") from None
        # A bucket may stand in front of the name.
        known = next((known for known in RECORDS if self._is(name, known)), None)
        if known is None:
            # libc parses addresses in all notations, without a name server.
            flags = socket.AI_NUMERICHOST
            return self._resolve(host, port, *arguments[:3], **{**options, "flags": flags})
        answers = self._answers.setdefault(known, iter(RECORDS[known][:-1]))
        addresses = next(answers, RECORDS[known][-1])
        return [
            (
                socket.AF_INET6 if ":" in address else socket.AF_INET,
                socket.SOCK_STREAM,
                socket.IPPROTO_TCP,
                "",
                (address, port or 0, 0, 0) if ":" in address else (address, port or 0),
            )
            for address in addresses
        ]

    @staticmethod
    def _is(name: str, known: str) -> bool:
        name = name.rstrip(".").lower()
        return name == known or name.endswith(f".{known}")

    def connect(self, connection: socket.socket, address: Any) -> None:
        if connection.family in {socket.AF_INET, socket.AF_INET6} and address[1] in _PORTS:
            self.connected.append(address[0])
            raise ConnectionRefusedError(111, "Connection refused")
        self._connect(connection, address)


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Network:
    settings.ALLOW_PRIVATE_ADDRESSES = settings.ALLOW_LOCAL_WEBHOOKS = False
    settings.PROVIDER_NETWORKS = ()
    network = Network()
    monkeypatch.setattr(socket, "getaddrinfo", network.getaddrinfo)

    def connect(connection: socket.socket, address: Any) -> None:
        network.connect(connection, address)

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(dispatch, "_send", lambda: None)
    # Between botocore's attempts.
    monkeypatch.setattr(botocore.endpoint.time, "sleep", lambda _: None)
    return network


Attempt = Callable[[str], str]
"""Aims the path at the address; returns why that failed, or an empty text."""


def deliver() -> str:
    """Send the due deliveries as a worker does."""
    failures = []
    for claimed in delivery_queue.claim(10):
        result = claimed.request
        if isinstance(result, WebhookRequest):
            result = asyncio.run(delivery_request.send(result, owner_id=claimed.owner_id))
        assert isinstance(result, DeliveryResult)
        delivery_queue.record(claimed, result, 0.1)
        failures.append(result.error)
    (failure,) = failures
    return failure


def refusal(response: Any) -> str:
    """The code of a refused request; empty for an accepted one."""
    return "" if response.status_code in {200, 201} else response.json()["code"]


def prompt_webhook(request: pytest.FixtureRequest) -> Attempt:
    api, workspace = request.getfixturevalue("api"), request.getfixturevalue("workspace")
    commit = create_commit(create_prompt(workspace, "support"), "Hello")

    def attempt(url: str) -> str:
        response = api.post("/prompt-webhooks", {"url": url, "triggers": ["commit"]})
        if code := refusal(response):
            return code
        prompt_webhooks.enqueue(WebhookEvent.COMMIT, commit)
        return deliver()

    return attempt


def deployment_webhook(request: pytest.FixtureRequest) -> Attempt:
    api, path = request.getfixturevalue("api"), "/v1/platform/deployment-webhooks"

    def attempt(url: str) -> str:
        response = api.post(path, {"url": url})
        if code := refusal(response):
            return code
        api.post(f"{path}/{response.json()['id']}/test", {})
        return deliver()

    return attempt


def alert_channel(kind: str) -> Callable[[pytest.FixtureRequest], Attempt]:
    fields = {"routing_key": "R0"} if kind == "pagerduty" else {}

    def path(request: pytest.FixtureRequest) -> Attempt:
        api = request.getfixturevalue("api")

        def attempt(url: str) -> str:
            action = {"target": kind, "config": {"url": url, **fields}}
            response = api.post("/v1/platform/alerts", {"rule": RULE, "actions": [action]})
            if code := refusal(response):
                return code
            rule_id = response.json()["rule"]["id"]
            api.post(f"/v1/platform/alerts/rules/{rule_id}/test", {})
            return deliver()

        return attempt

    return path


def agent_webhook(request: pytest.FixtureRequest) -> Attempt:
    """Webhooks of runs and crons, and push notifications of A2A: one rule and one sender."""
    serving = ServingConfig.from_revision({}, {})
    route = Route(uuid4(), uuid4(), uuid4(), "a", "a", uuid4(), {}, False, (), serving=serving)

    def attempt(url: str) -> str:
        try:
            agent_rules.validate(url, route)
        except AppError as error:
            return error.code
        policy = agent_rules.policy_of(serving.webhooks)
        webhook = WebhookRequest(policy.parse_target(url), policy, {}, b"{}")
        return asyncio.run(delivery_request.send(webhook, owner_id=route.organization_id)).error

    return attempt


def provider_address(request: pytest.FixtureRequest) -> Attempt:
    prepare = request.getfixturevalue("prepare")

    def attempt(url: str) -> str:
        try:
            collect(prepare("openai_compatible", base_url=url))
        except AppError as error:
            return error.code
        return ""

    return attempt


def provider_secret(request: pytest.FixtureRequest) -> Attempt:
    """The address of a provider as a secret of the workspace."""
    prepare, workspace = request.getfixturevalue("prepare"), request.getfixturevalue("workspace")

    def attempt(url: str) -> str:
        set_secrets(workspace_id=workspace.pk, values={"OPENAI_COMPATIBLE_BASE_URL": url})
        try:
            collect(prepare("openai_compatible"))
        except AppError as error:
            return error.code
        return ""

    return attempt


def judge(request: pytest.FixtureRequest) -> Attempt:
    """The call of an evaluator's judge, as a worker makes it."""
    api, dataset = request.getfixturevalue("api"), request.getfixturevalue("dataset")
    project = request.getfixturevalue("experiment")
    example = ExampleRevision.unscoped.filter(dataset=dataset).first()
    assert example is not None
    create_rule(api, dataset_id=str(dataset.pk), evaluators=[{"structured": structured("Right?")}])
    add_run(project.workspace, project, reference_example_id=str(example.example_id))
    evaluator = Evaluator.unscoped.get()

    def attempt(url: str) -> str:
        model = {"provider": "openai_compatible", "model": "judge", "base_url": url}
        evaluator.setting |= {"model": model}
        evaluator.save()
        Evaluation.unscoped.update(
            status="pending", attempt=0, ended_at=None, due_at=timezone.now()
        )
        (claimed,) = evaluations.claim(10)
        if claimed.call is None:
            return claimed.error or ""
        result = asyncio.run(evaluations.make_call(claimed))
        # Asked again later: the server did not answer.
        return result.error or "" if hasattr(result, "error") else "postponed"

    return attempt


def tool_webhook(request: pytest.FixtureRequest) -> Attempt:
    workspace = request.getfixturevalue("workspace")
    caller = Caller(workspace.organization_id, workspace.pk, frozenset())

    def attempt(url: str) -> str:
        async def call() -> None:
            async for _ in call_tool(prepare_tool_call(caller, ToolCallBody(url, "search", {}))):
                pass

        try:
            asyncio.run(call())
        except AppError as error:
            return error.code
        return ""

    return attempt


def git_address(_: pytest.FixtureRequest) -> Attempt:
    def attempt(url: str) -> str:
        try:
            check_address(url)
        except BuildFailed as error:
            return str(error)
        return ""

    return attempt


def egress_proxy(_: pytest.FixtureRequest) -> Attempt:
    """The way out of agents, their MCP servers and OAuth included, and of builds and clones."""

    def attempt(request_line: str) -> str:
        async def connect() -> None:
            proxy = connections.Connections(Rules([], []), uses_operator_proxy=False)
            head = f"{request_line} HTTP/1.1\r\n\r\n".encode()
            _, writer = await proxy._open(connections.parse_head(head))
            writer.close()

        try:
            asyncio.run(connect())
        except connections.RequestRejected as error:
            return error.status
        return ""

    return attempt


def export_destination(_: pytest.FixtureRequest) -> Attempt:
    def attempt(url: str) -> str:
        bucket = "exports"
        if " " in url:
            url, bucket = url.split(" ")
        config = {"bucket_name": bucket, "endpoint_url": url, "region": "us-east-1"}
        destination = Destination(config=config)
        destination.set_credentials({"access_key_id": "a", "secret_access_key": "b"})
        try:
            writers.test_write(destination)
        except WriteFailed as error:
            return str(error)
        return ""

    return attempt


# The name that changes its mind is refused by the proxy, through which Git connects.
GIT_HOSTS = [host for host in HOSTS if host != REBINDING]
GIT = [
    *(f"https://{host}/a.git" for host in GIT_HOSTS),
    *(f"ssh://git@{host}/a.git" for host in GIT_HOSTS),
    *(f"git://{host}/a.git" for host in GIT_HOSTS),
    *(f"git@{host}:a.git" for host in GIT_HOSTS),
    *USERINFO,
    *SCHEMES,
]
EGRESS = [*(f"CONNECT {host}:443" for host in HOSTS), *(f"GET {url}" for url in URLS)]
# A bucket's name may become a part of the host.
EXPORT = [*URLS, "http://254/ 169.254.169", "http://0.1/ 127.0", "http://attack/ private"]
PATHS: dict[str, tuple[Callable[[pytest.FixtureRequest], Attempt], list[str]]] = {
    "webhooks of prompts": (prompt_webhook, URLS),
    "webhooks of deployments": (deployment_webhook, URLS),
    "alerts: webhook": (alert_channel("webhook"), URLS),
    "alerts: Slack": (alert_channel("slack"), URLS),
    "alerts: PagerDuty": (alert_channel("pagerduty"), URLS),
    "webhooks of runs and crons, A2A push": (agent_webhook, URLS),
    "model providers: address of a call": (provider_address, URLS),
    "model providers: address as a secret": (provider_secret, URLS),
    "judges of evaluators": (judge, URLS),
    "tools of the playground": (tool_webhook, URLS),
    "Git repositories": (git_address, GIT),
    "agents, MCP clients, builds: their proxy": (egress_proxy, EGRESS),
    "exports to buckets": (export_destination, EXPORT),
}


def aim(network: Network, attempt: Attempt, url: str) -> tuple[str, list[str]]:
    """Return why the attempt failed, and the addresses that were connected to."""
    network.forget()
    return attempt(url), list(network.connected)


@pytest.mark.parametrize("path", PATHS)
def test_path_refuses_all_addresses(request, network, path):
    build, urls = PATHS[path]
    attempt = build(request)

    results = {url: aim(network, attempt, url) for url in urls}

    reached = {
        url: failure or hosts
        for url, (failure, hosts) in results.items()
        # The first answer of a name server that changes its mind is checked and used.
        if not failure or set(hosts) - ({PUBLIC} if REBINDING in url else set())
    }
    assert reached == {}
    row = f"| {path} | {len(urls)} of {len(urls)} |"
    assert row in (BASE_DIR / "docs/security.md").read_text()


@pytest.mark.parametrize("path", PATHS)
def test_path_reaches_a_public_address(request, network, path):
    """The refusals above are those of addresses, not of malformed attempts."""
    build, urls = PATHS[path]
    attempt = build(request)

    failure, hosts = aim(network, attempt, urls[0].replace("127.0.0.1", PUBLIC))

    # Git is not started here: its address is checked before, and by the proxy.
    assert (failure == "") if build is git_address else (set(hosts) == {PUBLIC})


def test_unsaved_alert_with_such_an_address_is_not_tested(api, workspace, network):
    project = ProjectFactory(workspace=workspace)
    action = {"target": "webhook", "config": {"url": "http://169.254.169.254/"}}

    response = api.post(
        f"/v1/platform/alerts/{project.pk}/test", {"rule": RULE, "actions": [action]}
    )

    assert response.json()["code"] == "webhook_blocked"
    assert network.connected == []


@contextmanager
def redirecting_server() -> Iterator[tuple[str, list[str]]]:
    """A server that redirects each request to itself; yields its URL and the requested paths."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            paths.append(self.path)
            self.send_response(307)
            self.send_header("Location", "/inner")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_PUT(self) -> None:
            self.do_POST()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/outer", paths
        server.shutdown()


@pytest.mark.parametrize(
    "path",
    [
        "webhooks of deployments",
        "webhooks of runs and crons, A2A push",
        "model providers: address of a call",
        "tools of the playground",
        "exports to buckets",
    ],
)
def test_path_follows_no_redirect(request, settings, monkeypatch, path):
    """One path for each piece of code that sends."""
    settings.ALLOW_PRIVATE_ADDRESSES = True
    monkeypatch.setattr(dispatch, "_send", lambda: None)
    attempt = PATHS[path][0](request)

    with redirecting_server() as (url, paths):
        failure = attempt(url)

    assert failure
    assert len(paths) == 1
    assert paths[0].startswith("/outer")
