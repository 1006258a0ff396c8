"""Platform API requests are counted and rejected; other paths are not."""

from __future__ import annotations

from uuid import uuid4

import pytest
import time_machine
from django.http import HttpResponse
from django.test import AsyncClient, override_settings
from django.urls import path

from apps.core.json import loads
from apps.rate_limits.models import LimitFactor
from tests.factories.api_keys import api_key_row, key_for
from tests.factories.organizations import UserFactory, WorkspaceFactory, WorkspaceMembershipFactory

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("limits")]

NOON = 4_000_000_000.0
HEADERS = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Category")


@pytest.fixture
def clock():
    with time_machine.travel(NOON, tick=False) as travelling:
        yield travelling


def limit_headers(response) -> tuple[str, ...]:
    return tuple(response.headers[name] for name in HEADERS)


def test_allowed_response_has_limit_headers(client, clock):
    key = key_for(WorkspaceFactory())

    first = client.get("/sessions", headers={"X-Api-Key": key})
    second = client.get("/api/v1/sessions/", headers={"X-Api-Key": key})

    assert first.status_code == second.status_code == 200
    assert limit_headers(first) == ("1000", "999", "Default (API key)")
    assert limit_headers(second) == ("1000", "998", "Default (API key)")
    assert NOON < int(first.headers["X-RateLimit-Reset"]) <= NOON + 10
    assert "Retry-After" not in first.headers


def test_rejection_has_the_error_shape_and_retry_after(client, clock):
    headers = {"X-Api-Key": key_for(WorkspaceFactory())}

    assert client.post("/runs/stats", headers=headers).status_code != 429
    rejected = client.post("/runs/stats", headers=headers)

    wait = int(rejected.headers["Retry-After"])
    assert rejected.status_code == 429
    assert loads(rejected.content) == {
        "detail": "Rate limit exceeded for Stats: at most 1 requests in 10 seconds."
        f" Retry in {wait} seconds.",
        "code": "rate_limited",
        "errors": [],
    }
    assert limit_headers(rejected) == ("1", "0", "Stats")
    assert int(rejected.headers["X-RateLimit-Reset"]) == NOON + wait

    clock.shift(wait - 1)
    assert client.post("/runs/stats", headers=headers).status_code == 429
    clock.shift(1)
    assert client.post("/runs/stats", headers=headers).status_code != 429


def test_rejection_of_newer_routes_has_an_error_field(client, clock):
    headers = {"X-Api-Key": key_for(WorkspaceFactory())}
    for _ in range(15):
        client.post("/v2/runs/query", headers=headers)

    rejected = client.post("/v2/runs/query", headers=headers)

    assert rejected.status_code == 429
    assert loads(rejected.content)["error"].startswith(
        "Rate limit exceeded for Run query (API): at most 15 requests"
    )


def test_another_region_has_its_own_limit(client, clock, settings):
    settings.REGION = "eu"
    headers = {"X-Api-Key": key_for(WorkspaceFactory())}

    assert limit_headers(client.post("/runs/stats", headers=headers)) == ("20", "19", "Stats")


def test_keys_count_separately_and_their_other_rows_are_untouched(client, clock):
    first_key, second_key = (key_for(WorkspaceFactory()) for _ in range(2))
    for _ in range(2):
        client.post("/runs/stats", headers={"X-Api-Key": first_key})

    assert limit_headers(client.post("/runs/stats", headers={"X-Api-Key": second_key}))[1] == "0"
    assert client.post("/runs/query", headers={"X-Api-Key": first_key}).status_code != 429


@pytest.mark.parametrize(
    ("method", "name"),
    [
        *(("get", name) for name in ("models", "draft", "experiments/rows")),
        *(("post", name) for name in ("stream", "tools/call", "commits", "experiments")),
    ],
)
def test_requests_of_the_playground_count_like_model_calls_of_the_api(client, clock, method, name):
    member = WorkspaceMembershipFactory()
    client.force_login(member.user)
    path = f"/o/{member.workspace_id}/playground"
    api_call = client.post("/prompts/invoke_prompt", headers={"X-User-Id": str(member.user_id)})

    response = getattr(client, method)(f"{path}/{name}")

    assert limit_headers(api_call) == ("1000", "999", "Default (User)")
    assert limit_headers(response) == ("1000", "998", "Default (User)")
    assert "X-RateLimit-Limit" not in client.get(path).headers


def test_requests_of_the_playground_have_the_limits_of_the_organization(client, clock):
    member = WorkspaceMembershipFactory()
    organization = member.workspace.organization
    LimitFactor.objects.create(organization=organization, factor=0.002)
    client.force_login(member.user)
    path = f"/o/{member.workspace_id}/evaluators/try"

    statuses = [client.post(path).status_code for _ in range(3)]

    assert statuses[2] == 429
    assert 429 not in statuses[:2]
    assert client.get(f"/o/{member.workspace_id}/playground").status_code == 200


def test_unauthenticated_request_counts_on_the_address(client, clock):
    valid = key_for(WorkspaceFactory())
    revoked = key_for(WorkspaceFactory())
    row = api_key_row(revoked)
    row.revoked_at = row.created_at
    row.save()
    for number in range(97):
        assert client.get("/sessions", headers={"X-Api-Key": f"guess-{number}"}).status_code == 401
    assert client.get("/sessions", headers={"X-Api-Key": revoked}).status_code == 401
    assert client.get("/sessions", headers={"X-User-Id": str(uuid4())}).status_code == 401
    last = client.get("/sessions")

    assert limit_headers(last) == ("100", "0", "Public (catch-all)")
    for headers in (
        {"X-Api-Key": "another"},
        {"X-User-Id": "x"},
        {"Authorization": "Bearer x"},
        {},
    ):
        assert client.get("/runs/query", headers=headers).status_code == 429
    assert client.get("/sessions", headers={"X-Api-Key": valid}).status_code == 200
    assert client.get("/sessions", REMOTE_ADDR="203.0.113.9").status_code == 401
    assert client.get("/info").status_code == 200


def test_user_counts_with_their_address(client, clock):
    membership = WorkspaceMembershipFactory(role="editor")
    client.force_login(membership.user)
    headers = {"X-Tenant-Id": str(membership.workspace.pk)}

    first = client.get("/sessions", headers=headers)
    response = client.get("/sessions", headers=headers | {"X-User-Id": str(membership.user.pk)})
    elsewhere = client.get("/sessions", headers=headers, REMOTE_ADDR="203.0.113.9")
    pretending = client.get("/sessions", headers=headers | {"X-User-Id": str(UserFactory().pk)})

    assert limit_headers(first) == ("1000", "999", "Default (User)")
    assert limit_headers(response) == ("1000", "998", "Default (User)")
    assert limit_headers(elsewhere) == ("1000", "999", "Default (User)")
    assert limit_headers(pretending)[2] == "Public (catch-all)"


def test_an_ipv6_network_counts_as_one_address(client, clock):
    first = client.get("/sessions", REMOTE_ADDR="2001:db8:1:2::1")
    same_network = client.get("/sessions", REMOTE_ADDR="2001:db8:1:2:ffff::2")
    other = client.get("/sessions", REMOTE_ADDR="2001:db8:1:3::1")
    mapped = client.get("/sessions", REMOTE_ADDR="::ffff:192.0.2.7")
    plain = client.get("/sessions", REMOTE_ADDR="192.0.2.7")

    remaining = [
        limit_headers(response)[1] for response in (first, same_network, other, mapped, plain)
    ]
    assert remaining == ["99", "98", "99", "99", "98"]


def test_preflights_are_counted_and_rejections_have_cors_headers(client, clock):
    preflight_headers = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
    headers = {"X-Api-Key": key_for(WorkspaceFactory()), "Origin": "https://app.example"}

    preflight = client.options("/runs/stats", headers=preflight_headers)
    allowed, rejected = (client.post("/runs/stats", headers=headers) for _ in range(2))

    assert preflight.status_code == 204
    assert limit_headers(preflight) == ("2000", "1999", "High throughput")
    assert preflight["Access-Control-Allow-Methods"].startswith("GET, POST")
    for response in (allowed, rejected):
        assert response["Access-Control-Allow-Origin"] == "*"
        assert "x-ratelimit-remaining" in response["Access-Control-Expose-Headers"]
    assert rejected.status_code == 429


@pytest.mark.parametrize(
    "address", ["/", "/sign-in", "/healthz", "/ok", "/info/health", "/admin/login/", "/o/x"]
)
def test_paths_outside_the_table_are_not_counted(client, clock, address):
    response = client.get(address)

    assert "X-RateLimit-Limit" not in response.headers


def test_unknown_api_paths_are_counted(client, clock):
    response = client.get("/api/v1/no/such/thing")

    assert response.status_code == 404
    assert limit_headers(response) == ("100", "99", "Public (catch-all)")


def test_rejected_request_is_not_parsed(client, clock, monkeypatch):
    headers = {"X-Api-Key": key_for(WorkspaceFactory())}
    client.post("/runs/stats", headers=headers)
    monkeypatch.setattr("apps.core.drf.JSONParser.parse", None)  # calling it would fail

    rejected = client.post("/runs/stats", "{", content_type="application/json", headers=headers)

    assert rejected.status_code == 429


def test_factor_of_zero_disables_limits(client, clock, settings):
    settings.RATE_LIMIT_FACTOR = 0.0
    headers = {"X-Api-Key": key_for(WorkspaceFactory())}

    responses = [client.post("/runs/stats", headers=headers) for _ in range(3)]

    assert all(response.status_code != 429 for response in responses)
    assert "X-RateLimit-Limit" not in responses[-1].headers


async def _async_view(request):
    return HttpResponse(b"async")


urlpatterns = [path("an-async-view", _async_view)]


@override_settings(ROOT_URLCONF="tests.rate_limits.test_middleware")
async def test_async_views_are_counted(clock):
    client = AsyncClient()

    first = await client.get("/an-async-view")
    second = await client.get("/api/v1/an-async-view/")

    assert first.content == second.content == b"async"
    assert [limit_headers(response)[1] for response in (first, second)] == ["99", "98"]
