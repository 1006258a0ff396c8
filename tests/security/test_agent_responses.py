"""Responses of agents reach neither the whole origin nor the platform's pages."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from apps.agent_server.web import proxy
from apps.agent_server.web.proxy import ProxyTarget
from apps.deployments.checks import check_agent_domain
from apps.tracing.api.downloads import _safe_mime_type

SHARED = ProxyTarget(SimpleNamespace(slug="agent"), "/x", "/agents/agent")
OWN_HOST = ProxyTarget(SimpleNamespace(slug="agent"), "/x", "")
REMOVED = (
    *("Alt-Svc", "NEL", "Report-To", "Reporting-Endpoints", "Accept-CH", "Critical-CH"),
    *("Clear-Site-Data", "Service-Worker-Allowed", "Strict-Transport-Security", "Expect-CT"),
    *("Public-Key-Pins", "Origin-Agent-Cluster", "Refresh", "SourceMap", "Connection"),
    *("Transfer-Encoding", "Upgrade", "Keep-Alive", "Trailer", "X-Accel-Redirect", "X-Sendfile"),
    *("x-accel-buffering", "Content-Security-Policy-Report-Only", "No-Vary-Search", ""),
)
KEPT = (
    *("Content-Type", "Content-Length", "Cache-Control", "ETag", "Location", "Vary", "X-Own"),
    *("Access-Control-Allow-Origin", "Mcp-Session-Id", "RateLimit-Remaining", "Retry-After"),
)


@pytest.mark.parametrize("target", [SHARED, OWN_HOST], ids=["shared", "own host"])
def test_only_headers_about_the_response_reach_the_client(target):
    sent = [(name.encode(), b"1") for name in (*REMOVED, *KEPT)]

    names = [name for name, _ in proxy._response_headers(sent, target)]

    assert [name for name in names if name in {n.lower().encode() for n in REMOVED}] == []
    assert names[: len(KEPT)] == [name.lower().encode() for name in KEPT]


@pytest.mark.parametrize(
    ("cookie", "shared", "own_host"),
    [
        ("a=1", "a=1; Path=/agents/agent", "a=1"),
        ("a=1; Domain=example.org; Path=/", "a=1; Path=/agents/agent", "a=1; Path=/"),
        ("a=1; domain =example.org", "a=1; Path=/agents/agent", "a=1"),
        ("a=1; \tDOMAIN\t= .example.org; Secure", "a=1; Secure; Path=/agents/agent", "a=1; Secure"),
        ("slipway_session=1", None, None),
        (" slipway_csrf =1; Path=/", None, None),
        ("=slipway_session=1", None, None),
    ],
)
def test_cookies_are_limited_to_their_agent(cookie, shared, own_host):
    for target, expected in ((SHARED, shared), (OWN_HOST, own_host)):
        headers = proxy._response_headers([(b"Set-Cookie", cookie.encode())], target)

        cookies = [value.decode() for name, value in headers if name == b"set-cookie"]
        assert cookies == ([] if expected is None else [expected])


@pytest.mark.parametrize(
    ("site", "destination", "is_refused"),
    [
        ("same-origin", "script", True),
        ("same-origin", "serviceworker", True),
        ("same-origin", "style", True),
        ("same-origin", "document", False),
        ("same-origin", "empty", False),
        ("cross-site", "script", False),
        (None, "script", False),
    ],
)
def test_platform_pages_load_no_code_of_agents(site, destination, is_refused):
    headers = [(b"sec-fetch-dest", destination.encode())]
    if site is not None:
        headers.append((b"sec-fetch-site", site.encode()))

    assert proxy._is_script_of_platform_page(headers) is is_refused


@pytest.mark.parametrize(
    ("recorded", "served"),
    [
        ("text/javascript", "text/plain; charset=utf-8"),
        ("application/x-JavaScript; charset=utf-8", "text/plain; charset=utf-8"),
        ("text/ecmascript", "text/plain; charset=utf-8"),
        ("text/jscript", "text/plain; charset=utf-8"),
        ("TEXT/CSS", "text/plain; charset=utf-8"),
        ("application/json", "application/json"),
        ("application/postscript", "application/postscript"),
        ("image/png", "image/png"),
    ],
)
def test_attachments_are_not_served_as_code(recorded, served):
    assert _safe_mime_type(recorded) == served


@pytest.mark.parametrize(("domain", "ids"), [("", ["deployments.I002"]), ("agents.example", [])])
def test_deploy_check_recommends_hosts_of_their_own_for_agents(settings, domain, ids):
    settings.AGENT_DOMAIN = domain

    assert [message.id for message in check_agent_domain(None)] == ids
