"""Each row of the specification in each region, with real requests to live web processes.

The processes count with a clock that the test sets. Of the requests up to a limit, the first and
the last `SENT` are sent; those between them are added to the counter, except in the test of four
processes, which counts each of 1,600 requests. Rows of more than 1,000 requests are tested in this
process by concurrent calls of the limit check, and with one request through the web.
"""

from __future__ import annotations

import http.client
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import cycle, islice
from typing import Any

import pytest
import time_machine
from django.db import connections
from django.test import Client

from apps.core.http.middleware import canonical
from apps.organizations.models import User
from apps.rate_limits.counters import LimitReached
from apps.rate_limits.enforcement import check
from tests.factories.api_keys import key_for
from tests.factories.organizations import UserFactory, WorkspaceFactory
from tests.rate_limits import specification
from tests.rate_limits.conftest import add_to_counters, delete_counts, list_counters
from tests.rate_limits.servers import NOON, Server, list_serving_pids, run_server
from tests.rate_limits.specification import SpecificationRow

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.xdist_group("limits"),
    pytest.mark.integration,  # starts its own servers
]

MAX_BY_REQUESTS = 1000
CLIENTS = 8
SENT = 24
CONNECT_SECONDS = 120
ID = "0190c2c2-2222-7333-8444-555555555555"
# Requests that count on each row, with the paths that clients use.
REQUESTS: dict[str, list[tuple[str, str]]] = {
    "OPTIONS; /info; */v1/metadata/submit": [
        ("OPTIONS", "/sessions"),
        ("GET", "/info"),
        ("POST", "/v1/metadata/submit"),
        ("GET", "/api/v1/info/"),
    ],
    "/auth": [("POST", "/auth"), ("GET", "/api/v1/auth")],
    "/v1/beacon": [("POST", "/v1/beacon"), ("POST", "/v1/beacon/verify")],
    "/repos": [("GET", "/repos"), ("POST", "/api/v1/repos/"), ("GET", "/repos/-/prompt")],
    "POST /runs/batch": [("POST", "/runs/batch"), ("POST", "/api/v1/runs/batch")],
    "POST /otel/v1/traces": [("POST", "/otel/v1/traces"), ("POST", "/api/v1/otel/v1/traces")],
    "POST containing /charts": [("POST", "/charts"), ("POST", "/api/v1/charts/preview")],
    "POST /runs/multipart": [("POST", "/runs/multipart")],
    "POST /runs/query": [("POST", "/runs/query"), ("POST", "/api/v1/runs/query")],
    "/generate": [("POST", "/generate"), ("GET", "/v1/platform/generate")],
    "/commits": [("GET", "/commits"), ("GET", "/commits/-/prompt/latest")],
    "DELETE /sessions; */trigger": [
        ("DELETE", "/sessions"),
        ("POST", f"/runs/rules/{ID}/trigger"),
        ("DELETE", f"/api/v1/sessions/{ID}"),
    ],
    "POST /runs (single run ingest)": [("POST", "/runs"), ("POST", "/api/v1/runs")],
    "PATCH containing /runs": [("PATCH", f"/runs/{ID}"), ("PATCH", f"/v2/runs/{ID}")],
    "POST /feedback": [("POST", "/feedback"), ("POST", "/api/v1/feedback/")],
    "GET /runs/{uuid}; GET /api/v1/runs/{uuid}": [
        ("GET", f"/runs/{ID}"),
        ("GET", f"/api/v1/runs/{ID}"),
    ],
    "GET containing /examples": [("GET", "/examples"), ("GET", f"/datasets/{ID}/examples")],
    "Any request with x-api-key": [
        ("GET", "/sessions"),
        ("PUT", "/api/v1/sessions"),
        ("GET", "/no/such/thing"),
        ("GET", "/v2/no/such/thing/"),
    ],
    "Any request with x-user-id": [
        ("GET", "/sessions"),
        ("POST", "/runs/batch"),
        ("GET", "/api/v1/no/such/thing"),
    ],
    "/public/download": [("GET", "/public/download"), ("GET", "/public/download/token")],
    "/runs/stats": [("POST", "/runs/stats"), ("GET", "/api/v1/runs/stats/")],
    "All other IPs (catch-all)": [("GET", "/sessions"), ("POST", "/runs/query")],
}


@pytest.fixture(scope="module")
def us(django_db_setup: None, tmp_path_factory: Any) -> Iterator[Server]:
    with run_server(tmp_path_factory.mktemp("us"), "us", processes=4) as region_server:
        yield region_server


@pytest.fixture(scope="module")
def eu(django_db_setup: None, tmp_path_factory: Any) -> Iterator[Server]:
    with run_server(tmp_path_factory.mktemp("eu"), "eu") as region_server:
        yield region_server


# Rows of both regions are one table for the same code: the second region is in the long form.
@pytest.fixture(params=["us", pytest.param("eu", marks=pytest.mark.slow)])
def region(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def web(request: pytest.FixtureRequest, region: str) -> Server:
    region_server: Server = request.getfixturevalue(region)
    region_server.reset()
    return region_server


def select_limit(row: SpecificationRow, region: str) -> tuple[int, int]:
    return row.eu if region == "eu" else row.us


class Visitors:
    """Creates a new identity of a row's kind for each row."""

    def __init__(self) -> None:
        self._number = 0
        self._workspace = WorkspaceFactory()

    def create_visitor(self, kind: str) -> tuple[str, dict[str, str]]:
        """Return the address and the headers of a new visitor."""
        self._number += 1
        address = f"127.1.0.{self._number}"
        if kind == "x-api-key":
            return address, {"X-Api-Key": key_for(self._workspace)}
        if kind == "x-user-id + IP":
            user, client = UserFactory(), Client()
            client.force_login(user)
            cookie = "; ".join(f"{name}={m.value}" for name, m in client.cookies.items())
            return address, {"Cookie": cookie, "X-User-Id": str(user.pk)}
        return address, {}


class ConcurrentClient:
    """Concurrent clients, each with its own open connection."""

    def __init__(self, web: Server, address: str, headers: dict[str, str], clients: int) -> None:
        self._headers = headers
        self._connections = [web.connect(address) for _ in range(clients)]
        self._pool = ThreadPoolExecutor(clients)

    def send(self, requests: list[tuple[str, str]]) -> list[tuple[int, http.client.HTTPMessage]]:
        """Send the requests and return status and headers of each response."""
        shares = [requests[n :: len(self._connections)] for n in range(len(self._connections))]
        answers = self._pool.map(self._send_all, self._connections, shares)
        return [answer for share in answers for answer in share]

    def _send_all(
        self, connection: http.client.HTTPConnection, requests: list[tuple[str, str]]
    ) -> list[tuple[int, http.client.HTTPMessage]]:
        answers = []
        for method, path in requests:
            connection.request(method, path, headers=self._headers)
            response = connection.getresponse()
            response.read()
            answers.append((response.status, response.headers))
        return answers

    def close(self) -> None:
        self._pool.shutdown()
        for connection in self._connections:
            connection.close()


def statuses(answers: list[tuple[int, http.client.HTTPMessage]]) -> Counter[str]:
    return Counter("refused" if status == 429 else "allowed" for status, _ in answers)


def test_each_row_has_requests():
    assert set(REQUESTS) == {row.match for row in specification.load_rows()}


def test_each_row_of_up_to_a_thousand_by_real_requests(web, region):
    visitors, tested_rows = Visitors(), 0
    for row in specification.load_rows():
        count, seconds = select_limit(row, region)
        if count > MAX_BY_REQUESTS:
            continue
        web.clock.set(NOON)
        address, headers = visitors.create_visitor(row.identity)
        requests = REQUESTS[row.match]

        with closing(
            ConcurrentClient(web, address, headers, min(CLIENTS, count))
        ) as concurrent_client:
            counters = list_counters(web.redis_url)
            within = concurrent_client.send(requests[:1])
            counters = list_counters(web.redis_url) - counters
            skipped = max(0, count - 1 - SENT)
            add_to_counters(web.redis_url, counters, skipped)
            rest = islice(cycle(requests), 1, count - skipped)
            within += concurrent_client.send([*rest])
            beyond = concurrent_client.send(requests)
            limit_headers = beyond[0][1]
            reset = int(limit_headers["X-RateLimit-Reset"])
            web.clock.set(reset - 0.5)
            before_reset = concurrent_client.send(requests[:1])
            web.clock.set(reset)
            after = concurrent_client.send(requests[:1])

        assert len(counters) == 1
        assert statuses(within) == {"allowed": count - skipped}, row
        assert statuses(beyond) == {"refused": len(requests)}, row
        assert {headers["X-RateLimit-Category"] for _, headers in within + beyond} == {row.category}
        assert (limit_headers["X-RateLimit-Limit"], limit_headers["X-RateLimit-Remaining"]) == (
            str(count),
            "0",
        )
        assert NOON < reset <= NOON + seconds
        assert int(limit_headers["Retry-After"]) == reset - NOON
        assert statuses(before_reset) == {"refused": 1}, row
        assert statuses(after) == {"allowed": 1}, row
        assert after[0][1]["X-RateLimit-Remaining"] == str(count - 1)
        tested_rows += 1

    assert tested_rows == 15


def test_each_larger_row_by_concurrent_clients(limits, web, region, settings):
    settings.REGION = region
    visitors, tested_rows = Visitors(), 0
    with ThreadPoolExecutor(CLIENTS) as pool:
        for row in specification.load_rows():
            count, seconds = select_limit(row, region)
            if count <= MAX_BY_REQUESTS:
                continue
            address, headers = visitors.create_visitor(row.identity)
            user = _find_user(headers)
            requests = REQUESTS[row.match]
            with closing(ConcurrentClient(web, address, headers, 1)) as concurrent_client:
                [(_, limit_headers)] = concurrent_client.send(requests[:1])

            with time_machine.travel(NOON, tick=False) as clock:
                counters = list_counters(settings.REDIS_URL)
                within = _drive(pool, requests, 1, address, headers, user)
                counters = list_counters(settings.REDIS_URL) - counters
                add_to_counters(settings.REDIS_URL, counters, count - 1 - SENT)
                within += _drive(pool, requests, SENT, address, headers, user)
                beyond = _drive(pool, requests, len(requests), address, headers, user)
                wait = _reset(requests[0], address, headers, user) - NOON
                clock.shift(wait - 0.5)
                before_reset = _drive(pool, requests, 1, address, headers, user)
                clock.shift(0.5)
                after = _drive(pool, requests, 1, address, headers, user)

            assert limit_headers["X-RateLimit-Category"] == row.category, row
            assert limit_headers["X-RateLimit-Limit"] == str(count), row
            assert len(counters) == 1
            assert within == {row.category: 1 + SENT}, row
            assert beyond == {"refused": len(requests)}, row
            assert 0 < wait <= seconds
            assert (before_reset, after) == ({"refused": 1}, {row.category: 1}), row
            tested_rows += 1

    assert tested_rows == 14


def _find_user(headers: dict[str, str]) -> Callable[[], Any]:
    user = User.objects.filter(pk=headers.get("X-User-Id")).first() if headers else None
    return lambda: user


def _check(
    request: tuple[str, str], address: str, headers: dict[str, str], user: Callable[[], Any]
) -> str:
    method, path = request
    try:
        usage = check(
            method=method, path=canonical(path), headers=headers, remote=address, user=user
        )
    except LimitReached:
        return "refused"
    return "uncounted" if usage is None else usage.category


def _drive(
    pool: ThreadPoolExecutor,
    requests: list[tuple[str, str]],
    count: int,
    *visitor: Any,
) -> Counter[str]:
    """Count the outcomes of `count` requests of eight concurrent clients."""
    shares = [[*islice(cycle(requests), count)][n::CLIENTS] for n in range(CLIENTS)]

    def send(share: list[tuple[str, str]]) -> Counter[str]:
        try:
            return Counter(_check(request, *visitor) for request in share)
        finally:
            connections.close_all()

    return sum(pool.map(send, shares), Counter())


def _reset(request: tuple[str, str], *visitor: Any) -> int:
    address, headers, user = visitor
    with pytest.raises(LimitReached) as refusal:
        check(
            method=request[0],
            path=canonical(request[1]),
            headers=headers,
            remote=address,
            user=user,
        )
    return refusal.value.usage.reset_at


def connect_to_all_processes(
    web: Server, address: str, headers: dict[str, str]
) -> ConcurrentClient:
    """Open sixteen connections, again until every process has one."""
    deadline = time.monotonic() + CONNECT_SECONDS
    while True:
        concurrent_client = ConcurrentClient(web, address, headers, 16)
        concurrent_client.send([("GET", "/healthz")] * 16)
        if len(list_serving_pids(web)) == len(web.processes):
            return concurrent_client
        concurrent_client.close()
        assert time.monotonic() < deadline, "a process got no connection"


def test_four_processes_and_sixteen_clients_allow_exactly_the_limit(us):
    us.reset()
    headers = {"X-Api-Key": key_for(WorkspaceFactory())}

    with closing(connect_to_all_processes(us, "127.2.0.1", headers)) as concurrent_client:
        answers = concurrent_client.send([("GET", "/sessions")] * 1600)

    assert statuses(answers) == {"allowed": 1000, "refused": 600}
    remaining = Counter(int(headers["X-RateLimit-Remaining"]) for _, headers in answers)
    assert remaining == Counter({0: 601} | dict.fromkeys(range(1, 1000), 1))
    delete_counts(us.redis_url)
