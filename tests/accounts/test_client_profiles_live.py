"""Profiles of the public clients sign in and refresh against the running platform."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx
import pytest
from langsmith import Client

from tests.contract import scripts
from tests.live import Live
from tests.required_tools import skip_without

CLI = "langsmith-cli"
DEVICE_CODE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"


def sign_in_like_the_cli(live: Live) -> dict[str, str]:
    """Return the tokens after the requests of `langsmith auth login`, approved in a browser."""
    metadata = httpx.get(f"{live.url}/api/.well-known/oauth-authorization-server").json()
    resource = {"client_id": CLI, "resource": metadata["issuer"]}
    login = httpx.post(metadata["device_authorization_endpoint"], data=resource).json()
    approve(live, login["verification_uri_complete"])
    response = httpx.post(
        metadata["token_endpoint"],
        data=resource | {"grant_type": DEVICE_CODE_GRANT, "device_code": login["device_code"]},
    )
    assert response.status_code == 200, response.text
    tokens: dict[str, str] = response.json()
    return tokens


def approve(live: Live, link: str) -> None:
    """Follow the link of the client, sign in, and approve."""
    with httpx.Client(follow_redirects=True, headers={"Accept": "text/html"}) as browser:
        page = browser.get(link)
        assert page.url.path == "/sign-in"
        page = submit(browser, page, "/sign-in", email=live.email, password=live.password)
        assert page.url.path == "/account/device", page.text
        code = re.search(r'name="user_code" value="([A-Z-]+)"', page.text)
        assert code is not None
        page = submit(
            browser,
            page,
            "/account/device",
            user_code=code[1],
            workspace=live.workspace_id,
            scope="admin",
            answer="approve",
        )
        assert "The client is signed in" in page.text


def submit(browser: httpx.Client, page: httpx.Response, path: str, **fields: str) -> httpx.Response:
    hidden = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page.text))
    hidden = {name: value.replace("&amp;", "&") for name, value in hidden.items()}
    return browser.post(str(page.url.join(path)), data=hidden | fields)


@pytest.fixture
def profile(live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The configuration file of a signed-in profile whose access token has expired."""
    tokens = sign_in_like_the_cli(live)
    config = {
        "current_profile": "default",
        "profiles": {
            "default": {
                "api_url": live.api_url,
                "oauth": {
                    "access_token": "slip_at_expired",
                    "refresh_token": tokens["refresh_token"],
                    "expires_at": "2026-01-01T00:00:00Z",
                },
            }
        },
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    for name in ("LANGSMITH_API_KEY", "LANGSMITH_ENDPOINT", "LANGCHAIN_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LANGSMITH_CONFIG_FILE", str(path))
    return path


def read_oauth(path: Path) -> dict[str, str]:
    oauth: dict[str, str] = json.loads(path.read_text())["profiles"]["default"]["oauth"]
    return oauth


def test_python_client_refreshes_its_profile(live, profile):
    spent = read_oauth(profile)["refresh_token"]
    client = Client()

    client.create_dataset("signed-in-by-profile")
    client.delete_dataset(dataset_name="signed-in-by-profile")

    oauth = read_oauth(profile)
    assert oauth["access_token"].startswith("slip_at_")
    assert oauth["access_token"] != "slip_at_expired"
    assert oauth["refresh_token"] != spent
    client.cleanup()


@skip_without(scripts.missing_reason("langsmith"))
def test_javascript_client_refreshes_its_profile(live, profile):
    folder = Path(__file__).with_name("javascript")

    [result] = scripts.run_file("profile.mjs", folder=folder).values()

    assert result.passed, result.error
    assert read_oauth(profile)["access_token"] != "slip_at_expired"
