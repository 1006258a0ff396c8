"""Addresses inside the platform's network are refused for every webhook that a member enters."""

from __future__ import annotations

import asyncio
import ipaddress

import pytest

from apps.core import ssrf
from apps.webhooks import delivery_request, policy
from apps.webhooks.signed_request import build_signed_request
from tests.factories.tracing import ProjectFactory
from tests.receiver import Receiver
from tests.tracing.conftest import api, make_api

__all__ = ["api", "make_api"]
pytestmark = pytest.mark.django_db
REFUSED = [
    "http://127.0.0.1/",
    "http://localhost/",
    "http://127.1/",
    "http://2130706433/",  # decimal
    "http://0177.0.0.1/",  # octal
    "http://0x7f.0.0.1/",  # hexadecimal
    "http://0.0.0.0/",
    "http://10.0.0.1/",
    "http://172.16.0.1/",
    "http://192.168.0.1/",
    "http://100.64.0.1/",
    "http://169.254.169.254/latest/meta-data/",
    "http://[::1]/",
    "http://[::]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:a9fe:a9fe]/",
    "http://[fd00:ec2::254]/",
    "http://[fe80::1]/",
    "http://[fec0::1]/",
    "http://[64:ff9b::7f00:1]/",
    "http://[2002:7f00:1::]/",
    "http://224.0.0.1/",
    "http://user:pass@93.184.216.34/",
    "http://93.184.216.34\\@127.0.0.1/",
    "ftp://93.184.216.34/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:6379/_FLUSHALL",
    "http://93.184.216.34:0/",
]
RULE = {
    "name": "Errors", "attribute": "error_count", "aggregation": "count", "window_minutes": 15,
    "threshold": 1,
}  # fmt: skip


@pytest.fixture(autouse=True)
def production_policy(settings) -> None:
    settings.ALLOW_PRIVATE_ADDRESSES = settings.ALLOW_LOCAL_WEBHOOKS = False


def post_webhook(api, kind: str, url: str):
    match kind:
        case "prompt":
            return api.post("/prompt-webhooks", {"url": url, "triggers": ["commit"]})
        case "deployment":
            return api.post("/v1/platform/deployment-webhooks", {"url": url})
    config = {"url": url} | ({"routing_key": "R0"} if kind == "pagerduty" else {})
    body = {"rule": RULE, "actions": [{"target": kind, "config": config}]}
    return api.post("/v1/platform/alerts", body)


@pytest.mark.parametrize("url", REFUSED)
@pytest.mark.parametrize("kind", ["prompt", "deployment", "webhook", "slack", "pagerduty"])
def test_address_is_refused(api, kind, url):
    response = post_webhook(api, kind, url)

    assert (response.status_code, response.json()["code"]) == (422, "webhook_blocked")


@pytest.mark.parametrize("kind", ["prompt", "deployment", "webhook", "slack", "pagerduty"])
def test_public_address_is_accepted(api, kind):
    assert post_webhook(api, kind, "http://93.184.216.34/hook").status_code in {200, 201}


def test_unsaved_webhook_with_such_an_address_is_not_tested(api, workspace):
    project = ProjectFactory(workspace=workspace)
    action = {"target": "webhook", "config": {"url": "http://169.254.169.254/"}}

    response = api.post(
        f"/v1/platform/alerts/{project.pk}/test", {"rule": RULE, "actions": [action]}
    )

    assert response.json()["code"] == "webhook_blocked"


@pytest.mark.parametrize("address", ["127.0.0.1", "169.254.169.254", "::1", "::ffff:10.0.0.1"])
def test_name_that_resolves_to_the_network_only_when_it_is_sent_is_refused(monkeypatch, address):
    """DNS rebinding: the addresses of the check are those of the connection."""
    answers = iter([["93.184.216.34"], [address]])

    def resolve(host: str) -> list[ssrf.IPAddress]:
        return [ipaddress.ip_address(answer) for answer in next(answers)]

    monkeypatch.setattr(ssrf, "resolve", resolve)
    url = "http://rebinding.example/"
    policy.validate(url, policy.WebhookPolicy())

    request = build_signed_request(url, {}, None, "msg_1", b"{}")
    result = asyncio.run(delivery_request.send(request))

    assert result.is_final
    assert "is on this machine or on a private network" in result.error


def test_redirect_is_not_followed(settings):
    settings.ALLOW_PRIVATE_ADDRESSES = True
    with Receiver(200) as inner, Receiver(302, headers={"Location": inner.url}) as outer:
        request = build_signed_request(outer.url, {}, None, "msg_1", b"{}")

        result = asyncio.run(delivery_request.send(request))

        assert (result.status, inner.count_unread) == (302, 0)
    assert "redirects are not followed" in result.error
