"""Sign-in of MCP clients in the browser, and attacks on it."""

from __future__ import annotations

import base64
import hashlib
import json
from datetime import timedelta
from html import unescape
from random import randrange
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import pytest
import time_machine
from django.test import Client
from django.utils import timezone

from apps.api_keys.models import ApiKey, AuthorizationCode, ClientSession
from apps.api_keys.services import clear_cache, client_sign_in, oauth_clients
from apps.audit.models import Entry
from apps.deployments import routes
from apps.deployments.models import Revision
from apps.platform_mcp import authorize
from tests.factories.agent_server import AgentFactory
from tests.factories.organizations import WorkspaceFactory, WorkspaceMembershipFactory

pytestmark = pytest.mark.django_db
CALLBACK = "http://127.0.0.1:33418/callback"
PLATFORM = "http://testserver/mcp"
VERIFIER = "v" * 50
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).decode()[:43]
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


@pytest.fixture(autouse=True)
def without_limit(monkeypatch):
    monkeypatch.setattr(authorize, "MAX_REGISTRATIONS", (100_000, 600))


@pytest.fixture
def user(workspace):
    return WorkspaceMembershipFactory(workspace=workspace, role="editor").user


@pytest.fixture
def browser(user):
    client = Client()
    client.force_login(user)
    return client


def register(*uris: str, address: str = "127.0.0.1", **fields: Any):
    body = {"redirect_uris": list(uris), "client_name": "Some Client", **fields}
    client = Client(REMOTE_ADDR=address)
    return client.post("/oauth/register", json.dumps(body), content_type="application/json")


def client_id_for(*uris: str) -> str:
    return str(register(*(uris or (CALLBACK,))).json()["client_id"])


def request_of(client: str, resource: str = PLATFORM, **fields: str) -> dict[str, str]:
    return {
        "response_type": "code",
        "client_id": client,
        "redirect_uri": CALLBACK,
        "resource": resource,
        "code_challenge": CHALLENGE,
        "code_challenge_method": "S256",
        "state": "s t&te",
        **fields,
    }


def answer(browser: Client, asked: dict[str, str], workspace, answer: str = "approve", **fields):
    body = {**asked, "workspace": str(workspace.pk), "access": "write", "answer": answer, **fields}
    return browser.post("/oauth/authorize", body)


def code_in(response) -> str:
    assert response.status_code == 302, response.content.decode()
    return parse_qs(urlsplit(response["Location"]).query)["code"][0]


def exchange(client_id: str, code: str, **fields: str):
    clear_cache()
    body = {
        "grant_type": "authorization_code",
        "client_id": client_id,
        "code": code,
        "redirect_uri": CALLBACK,
        "code_verifier": VERIFIER,
        **fields,
    }
    return Client().post("/oauth/token", body)


def sign_in(browser: Client, workspace, resource: str = PLATFORM, **fields: str) -> dict[str, Any]:
    """The tokens of a client that the user let in, with its id."""
    client_id = client_id_for()
    code = code_in(answer(browser, request_of(client_id, resource), workspace, **fields))
    response = exchange(client_id, code)
    assert response.status_code == 200, response.content
    return {"client_id": client_id, **response.json()}


def refresh(tokens: dict[str, Any], **fields: str):
    clear_cache()
    body = {"grant_type": "refresh_token", "client_id": tokens["client_id"], **fields}
    return Client().post("/oauth/token", {"refresh_token": tokens["refresh_token"], **body})


def call(path: str, tokens: dict[str, Any], body: Any = None):
    clear_cache()
    headers = {"Authorization": f"Bearer {tokens['access_token']}"}
    if body is None:
        return Client().get(path, headers=headers)
    return Client().post(path, json.dumps(body), content_type="application/json", headers=headers)


# The flow


def test_a_client_signs_in_and_acts_as_the_user(browser, user, workspace):
    registered = register(CALLBACK, token_endpoint_auth_method="client_secret_post")
    client_id = registered.json()["client_id"]
    asked = request_of(client_id)

    page = browser.get("/oauth/authorize", asked).content.decode()
    answered = answer(browser, asked, workspace)
    tokens = exchange(client_id, code_in(answered), resource=PLATFORM).json()

    assert (registered.status_code, registered.json()["token_endpoint_auth_method"]) == (
        201,
        "none",
    )
    assert "Some Client" in page
    assert "127.0.0.1:33418" in page
    location = urlsplit(answered["Location"])
    assert location._replace(query="").geturl() == CALLBACK
    assert parse_qs(location.query)["state"] == ["s t&te"]
    assert (tokens["token_type"], tokens["scope"], tokens["expires_in"]) == (
        "Bearer",
        "write",
        3600,
    )
    assert call("/mcp", tokens, PING).json()["result"] == {}
    key = ApiKey.objects.get()
    assert (key.person, key.workspace, key.name) == (user, workspace, "Some Client")
    entry = Entry.objects.get(action="key.created")
    assert (entry.actor_label, entry.after["audience"]) == (user.email, "mcp")


def test_metadata_offers_the_flow():
    document = Client().get("/.well-known/oauth-authorization-server").json()

    assert document["authorization_endpoint"].endswith("/oauth/authorize")
    assert document["registration_endpoint"] == "http://testserver/oauth/register"
    assert document["response_types_supported"] == ["code"]
    assert document["code_challenge_methods_supported"] == ["S256"]
    assert "authorization_code" in document["grant_types_supported"]


def test_tools_of_the_platform_use_the_token_and_nothing_else_accepts_it(browser, workspace):
    tokens = sign_in(browser, workspace)
    body = {**PING, "method": "tools/call", "params": {"name": "list_datasets", "arguments": {}}}

    result = call("/mcp", tokens, body).json()["result"]

    assert result["isError"] is False, result
    for path in ("/datasets", "/api/v1/sessions", "/orgs/current", "/me/preferences"):
        assert call(path, tokens).status_code in {401, 404}, path
    assert call("/datasets", tokens).status_code == 401


def test_a_token_of_an_agent_is_for_its_mcp_server_only(browser, agent, settings):
    workspace = agent.workspace
    other = AgentFactory(workspace=workspace)
    resource = f"{settings.API_BASE_URL}/agents/{agent.slug}/mcp"
    tokens = sign_in(browser, workspace, resource)

    assert call(f"/agents/{agent.slug}/mcp", tokens, PING).status_code == 200
    refused = [
        call(f"/agents/{other.slug}/mcp", tokens, PING),
        call("/mcp", tokens, PING),
        call(f"/agents/{agent.slug}/assistants/search", tokens, {}),
        call("/datasets", tokens),
    ]
    assert [response.status_code for response in refused] == [401] * 4
    assert "resource_metadata" in refused[0]["WWW-Authenticate"]


def test_tokens_are_refreshed_for_their_resource(browser, workspace):
    tokens = sign_in(browser, workspace)

    elsewhere = refresh(tokens, resource="http://testserver/agents/x/mcp")
    renewed = refresh(tokens, resource=PLATFORM).json()

    assert elsewhere.json()["error"] == "invalid_target"
    assert call("/mcp", {**tokens, **renewed}, PING).status_code == 200
    another = client_id_for("https://another.example/callback")
    assert refresh({**tokens, "client_id": another}).json()["error"] == "invalid_grant"


def test_a_denied_client_gets_no_code(browser, workspace):
    denied = answer(browser, request_of(client_id_for()), workspace, "deny")

    query = parse_qs(urlsplit(denied["Location"]).query)
    assert query == {"error": ["access_denied"], "state": ["s t&te"]}
    assert not ApiKey.objects.exists()
    assert Entry.objects.get().action == "user.client_sign_in_denied"


def test_others_sign_in_first(workspace):
    asked = request_of(client_id_for())

    response = Client().get("/oauth/authorize", asked)

    assert response.status_code == 302
    target = urlsplit(response["Location"])
    assert target.netloc == ""
    back = urlsplit(dict(parse_qsl(target.query))["next"])
    assert (back.path, dict(parse_qsl(back.query))) == ("/oauth/authorize", asked)


# Codes


@pytest.mark.parametrize(
    "fields",
    [
        {"code_verifier": "w" * 50},
        {"code_verifier": CHALLENGE},
        {"code_verifier": "v" * 42},
        {"redirect_uri": "http://127.0.0.1:33419/callback"},
        {"resource": "http://testserver/agents/x/mcp"},
        {"client": "of another client"},
    ],
)
def test_a_code_with_a_wrong_field_is_refused_and_spent(browser, workspace, fields):
    client_id = client_id_for()
    code = code_in(answer(browser, request_of(client_id), workspace))
    sender = client_id_for("https://other.example/cb") if "client" in fields else client_id

    refused = exchange(sender, code, **{k: v for k, v in fields.items() if k != "client"})
    right = exchange(client_id, code)

    assert refused.json()["error"] == right.json()["error"] == "invalid_grant"
    assert ApiKey.objects.get().revoked_at is not None


def test_the_second_use_of_a_code_ends_the_session(browser, workspace):
    client_id = client_id_for()
    code = code_in(answer(browser, request_of(client_id), workspace))
    tokens = exchange(client_id, code).json()

    again = exchange(client_id, code)

    assert again.json()["error"] == "invalid_grant"
    assert call("/mcp", tokens, PING).status_code == 401
    assert refresh({**tokens, "client_id": client_id}).json()["error"] == "invalid_grant"


def test_codes_expire_and_are_cleaned_up(browser, workspace):
    client_id = client_id_for()
    code = code_in(answer(browser, request_of(client_id), workspace))
    signed_in = sign_in(browser, workspace)

    with time_machine.travel(timezone.now() + timedelta(seconds=61)):
        assert exchange(client_id, code).json()["error"] == "invalid_grant"
        client_sign_in.end_sessions()

    assert not AuthorizationCode.objects.exists()
    [session] = ClientSession.objects.all()
    assert session.key.revoked_at is None
    assert call("/mcp", signed_in, PING).status_code == 200
    assert ApiKey.objects.exclude(pk=session.pk).get().revoked_at is not None


def test_a_consent_whose_client_never_comes_leaves_no_key(browser, workspace):
    answer(browser, request_of(client_id_for()), workspace)

    with time_machine.travel(timezone.now() + timedelta(seconds=61)):
        client_sign_in.end_sessions()

    assert ApiKey.objects.get().revoked_at is not None


def test_the_code_is_stored_as_a_digest_and_the_key_has_no_usable_secret(browser, workspace):
    code = code_in(answer(browser, request_of(client_id_for()), workspace))

    row = AuthorizationCode.objects.get()
    assert bytes(row.digest) == hashlib.sha256(code.encode()).digest()
    assert code not in str(vars(row))


# Redirect addresses


@pytest.mark.parametrize(
    "uri",
    [
        "https://client.example/callback",
        "https://client.example:8443/callback?a=b",
        "http://localhost/cb",
        "http://127.0.0.1:1/cb",
        "http://[::1]:8080/cb",
        "cursor://anysphere.cursor-mcp/oauth/callback",
        "com.example.app:/callback",
    ],
)
def test_clients_may_have_these_addresses(browser, workspace, uri):
    asked = request_of(client_id_for(uri), redirect_uri=uri)

    page = browser.get("/oauth/authorize", asked)
    answered = answer(browser, asked, workspace)

    assert page.status_code == 200
    assert answered["Location"].startswith(uri)
    separator = "&" if "?" in uri else "?"
    assert answered["Location"].removeprefix(uri).startswith(f"{separator}code=")
    source = oauth_clients.redirect_source(uri)
    assert f"form-action 'self' {source};" in f"{page['Content-Security-Policy']};"


@pytest.mark.parametrize(
    "uri",
    [
        "http://client.example/callback",
        "http://127.0.0.1.evil.example/cb",
        "http://localhost@evil.example/cb",
        "https://user:pass@client.example/cb",
        "https://client.example/cb#fragment",
        "https:///cb",
        "https://client.example;script-src/cb",
        "https://client.example,default-src/cb",
        "https://client.example\\@evil.example/cb",
        "https://client.example/a b",
        "https://client.example/\ncb",
        "javascript:alert(1)",
        "JavaScript://x/%0Aalert(1)",
        "data:text/html,x",
        "file:///etc/passwd",
        "//client.example/cb",
        "/callback",
        "",
        "https://client.example:port/cb",
        "https://client.example/" + "a" * 300,
    ],
)
def test_clients_may_not_have_these_addresses(uri):
    refused = register("https://client.example/cb", uri)

    assert (refused.status_code, refused.json()["error"]) == (400, "invalid_redirect_uri")


@pytest.mark.parametrize(
    ("registered", "given", "is_allowed"),
    [
        (CALLBACK, "http://127.0.0.1:5/callback", True),
        ("http://localhost/callback", "http://localhost:5/callback", True),
        (CALLBACK, "http://localhost:33418/callback", False),
        (CALLBACK, "http://127.0.0.1:33418/callback/", False),
        (CALLBACK, "http://127.0.0.1:33418/callback?x=1", False),
        (CALLBACK, "https://127.0.0.1:33418/callback", False),
        ("https://a.example/cb", "https://a.example:444/cb", False),
        ("https://a.example/cb", "https://a.example/cb2", False),
        ("https://a.example/cb", "https://A.example/cb", False),
        ("https://a.example/cb", "https://evil.example/cb", False),
        ("https://a.example/cb", "", False),
    ],
)
def test_addresses_match_exactly_except_for_the_port_of_this_machine(
    browser, registered, given, is_allowed
):
    response = browser.get(
        "/oauth/authorize", request_of(client_id_for(registered), redirect_uri=given)
    )

    assert response.status_code == (200 if is_allowed else 400)
    assert "Location" not in response


# Requests


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"client_id": "unknown"}, 401),
        ({"client_id": "langsmith-cli"}, 401),
        ({"response_type": "token"}, 400),
        ({"code_challenge": ""}, 400),
        ({"code_challenge": "short"}, 400),
        ({"code_challenge_method": "plain"}, 400),
        ({"code_challenge_method": ""}, 400),
        ({"resource": ""}, 400),
        ({"resource": "http://testserver"}, 400),
        ({"resource": "https://evil.example/mcp"}, 400),
        ({"resource": "http://testserver/agents/missing/mcp"}, 400),
        ({"resource": "http://[/mcp"}, 400),
        ({"state": "s" * 5000}, 400),
    ],
)
@pytest.mark.parametrize("method", ["get", "post"])
def test_errors_are_pages_that_redirect_nowhere(browser, workspace, fields, status, method):
    asked = {**request_of(client_id_for()), **fields}
    choice = {"workspace": str(workspace.pk), "access": "write", "answer": "approve"}

    response = getattr(browser, method)(
        "/oauth/authorize", asked if method == "get" else {**asked, **choice}
    )

    assert response.status_code == status
    assert "Location" not in response
    assert not ApiKey.objects.exists()


def test_repeated_parameters_are_refused(browser):
    asked = request_of(client_id_for())

    response = browser.get("/oauth/authorize", {**asked, "state": ["a", "b"]})

    assert response.status_code == 400


def test_the_page_is_neither_framed_nor_submitted_by_others(user, workspace):
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(user)
    asked = request_of(client_id_for())

    page = strict.get("/oauth/authorize", asked)
    forged = answer(strict, asked, workspace)

    assert page["X-Frame-Options"] == "DENY"
    assert "frame-ancestors 'none'" in page["Content-Security-Policy"]
    assert "no-store" in page["Cache-Control"]
    assert forged.status_code == 403
    assert not ApiKey.objects.exists()


def test_a_name_is_text(browser):
    client_id = register(CALLBACK, client_name="<b>Evil</b>\u202e\x00 x").json()["client_id"]

    page = browser.get("/oauth/authorize", request_of(client_id)).content.decode()

    assert "<b>Evil" not in page
    assert "<b>Evil</b>\ufffd x" in unescape(page)


def test_agents_of_others_look_like_missing_ones(browser, settings):
    foreign = AgentFactory(name="sentinel-agent")
    resource = f"{settings.API_BASE_URL}/agents/{{}}/mcp"
    client_id = client_id_for()

    pages = [
        browser.get("/oauth/authorize", request_of(client_id, resource.format(slug)))
        for slug in (foreign.slug, "missing")
    ]

    assert [page.status_code for page in pages] == [400, 400]
    assert "sentinel-agent" not in pages[0].content.decode()


def test_agents_with_their_own_users_have_no_sign_in(browser, agent, settings):
    for config in ({"http": {"disable_mcp": True}}, {"auth": {"path": "./auth.py:auth"}}):
        Revision.unscoped.filter(deployment=agent).update(config=config)
        routes.clear_cache()
        asked = request_of(client_id_for(), f"{settings.API_BASE_URL}/agents/{agent.slug}/mcp")

        assert browser.get("/oauth/authorize", asked).status_code == 400, config


@pytest.mark.parametrize("field", ["workspace", "access"])
def test_choices_outside_the_page_are_refused(browser, workspace, field):
    other = WorkspaceFactory()
    values = {"workspace": str(other.pk), "access": "owner"}

    asked = request_of(client_id_for())
    choice = {"workspace": str(workspace.pk), "access": "write", "answer": "approve"}

    response = browser.post("/oauth/authorize", {**asked, **choice, field: values[field]})

    assert response.status_code == 422
    assert not ApiKey.objects.exists()


def test_organizations_without_personal_keys_let_no_client_in(browser, workspace):
    workspace.organization.personal_keys_disabled = True
    workspace.organization.save()

    response = answer(browser, request_of(client_id_for()), workspace)

    assert response.status_code == 422
    assert "Personal keys are disabled" in response.content.decode()


# Registration


@pytest.mark.parametrize(
    "body",
    [
        "{",
        "[]",
        "{}",
        '{"redirect_uris": "https://a.example"}',
        '{"redirect_uris": ["https://a.example/cb"], "client_name": "\\ud800"}',
        '{"redirect_uris": ["https://a.example/cb"], "grant_types": ["client_credentials"]}',
        '{"redirect_uris": ["https://a.example/cb"], "response_types": ["token"]}',
    ],
)
def test_malformed_registrations_are_refused(body):
    response = Client().post("/oauth/register", body, content_type="application/json")

    assert (response.status_code, response.json()["error"]) == (400, "invalid_client_metadata")


@pytest.mark.parametrize("count", [0, 6])
def test_a_client_has_one_to_five_addresses(count):
    refused = register(*[CALLBACK] * count)

    assert refused.json()["error"] == "invalid_redirect_uri"


def test_registrations_of_an_address_are_limited(monkeypatch):
    monkeypatch.setattr(authorize, "MAX_REGISTRATIONS", (2, 600))
    address = f"198.51.{randrange(256)}.{randrange(256)}"

    statuses = [register(CALLBACK, address=address).status_code for _ in range(3)]

    assert statuses == [201, 201, 429]


def test_the_device_flow_keeps_to_its_resource_too(browser, workspace):
    login = (
        Client()
        .post("/oauth/device/code", {"client_id": "langsmith-cli", "resource": PLATFORM})
        .json()
    )
    body = {"user_code": login["user_code"], "workspace": str(workspace.pk), "scope": "admin"}
    browser.post("/account/device", {**body, "answer": "approve"})
    grant = {
        "grant_type": "urn:ietf:params:oauth:grant-type:device_code",
        "client_id": "langsmith-cli",
        "device_code": login["device_code"],
    }

    tokens = Client().post("/oauth/token", grant).json()

    assert call("/mcp", tokens, PING).status_code == 200
    assert call("/datasets", tokens).status_code == 401
