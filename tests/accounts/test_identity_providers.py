"""Sign-in with an OpenID Connect provider."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest
from django.test import Client

from apps.organizations.models import User
from tests.accounts.conftest import create_user, is_signed_in

pytestmark = pytest.mark.django_db


class Provider(BaseHTTPRequestHandler):
    """A provider with one user that accepts the code `right`."""

    claims: dict[str, object]

    def do_GET(self) -> None:
        base = f"http://{self.headers['Host']}"
        if self.path == "/.well-known/openid-configuration":
            self.answer(
                {
                    "issuer": base,
                    "authorization_endpoint": f"{base}/authorize",
                    "token_endpoint": f"{base}/token",
                    "userinfo_endpoint": f"{base}/userinfo",
                    "jwks_uri": f"{base}/keys",
                }
            )
        elif self.headers["Authorization"] == "Bearer access":
            self.answer(self.claims)
        else:
            self.answer({}, 401)

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        if form["code"] == ["right"] and "code_verifier" in form:
            self.answer({"access_token": "access", "token_type": "Bearer"})
        else:
            self.answer({"error": "invalid_grant"}, 400)

    def answer(self, value: object, status: int = 200) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def provider(settings) -> Iterator[type[Provider]]:
    Provider.claims = {
        "sub": "1",
        "email": "ada@example.com",
        "email_verified": True,
        "name": "Ada",
    }
    server = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    app = {
        "provider_id": "oidc",
        "name": "Our company",
        "client_id": "slipway",
        "secret": "s",
        "settings": {"server_url": url},
    }
    settings.SOCIALACCOUNT_PROVIDERS = {
        "openid_connect": {"OAUTH_PKCE_ENABLED": True, "APPS": [app]}
    }
    yield Provider
    server.shutdown()
    thread.join()
    server.server_close()


def sign_in_with_provider(client: Client, code: str = "right"):
    """Start a sign-in with the provider and call back with a code."""
    provider_url = urlsplit(client.post("/account/oidc/oidc")["Location"])
    [state] = parse_qs(provider_url.query)["state"]
    return client.get("/account/oidc/oidc/callback", {"code": code, "state": state})


def test_sign_in_page_shows_the_provider(client, provider):
    assert b"Our company" in client.get("/sign-in").content


def test_new_provider_user_gets_an_account_with_a_verified_address(client, provider):
    sign_in_with_provider(client)

    user = User.objects.get(email="ada@example.com")
    assert (user.name, user.email_verified_at is not None) == ("Ada", True)
    assert is_signed_in(client)


def test_provider_user_with_a_verified_known_address_signs_in_to_that_account(client, provider):
    ada = create_user("ada@example.com")

    sign_in_with_provider(client)

    assert client.session["_auth_user_id"] == str(ada.pk)
    assert User.objects.count() == 1


def test_unverified_provider_address_does_not_take_over_an_account(client, provider):
    create_user("ada@example.com")
    provider.claims = provider.claims | {"email_verified": False}

    sign_in_with_provider(client)

    assert not is_signed_in(client)


def test_wrong_authorization_code_does_not_sign_in(client, provider):
    response = sign_in_with_provider(client, "wrong")

    assert response.status_code == 403
    assert b"Sign-in failed" in response.content
    assert not is_signed_in(client)


def test_callback_without_a_matching_state_does_not_sign_in(client, provider):
    response = client.get("/account/oidc/oidc/callback", {"code": "right", "state": "made up"})

    assert response.status_code == 403
    assert not is_signed_in(client)


def test_unknown_provider_is_404(client, db):
    assert client.post("/account/oidc/other").status_code == 404
