"""Addresses inside the platform's network are refused for providers, too."""

from __future__ import annotations

import ipaddress

import pytest

from apps.core import ssrf
from apps.providers import errors
from tests.providers.conftest import collect
from tests.providers.fake_provider import Reply
from tests.webhooks.test_refused_addresses import REFUSED

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def production_policy(settings) -> None:
    settings.ALLOW_PRIVATE_ADDRESSES = settings.ALLOW_LOCAL_WEBHOOKS = False
    settings.PROVIDER_NETWORKS = ()


@pytest.mark.parametrize("url", REFUSED)
def test_address_is_refused(prepare, url):
    with pytest.raises(errors.AddressBlocked):
        collect(prepare("openai_compatible", base_url=url))


@pytest.mark.parametrize("address", ["127.0.0.1", "169.254.169.254", "::1", "::ffff:10.0.0.1"])
def test_name_is_resolved_once_for_check_and_connection(prepare, monkeypatch, address):
    """DNS rebinding: the second answer of the name server is never used."""
    answers = iter([address, "93.184.216.34"])
    monkeypatch.setattr(ssrf, "resolve", lambda _: [ipaddress.ip_address(next(answers))])

    with pytest.raises(errors.AddressBlocked):
        collect(prepare("openai_compatible", base_url="http://rebinding.example"))

    assert next(answers) == "93.184.216.34"


def test_network_that_the_operator_opened_is_reached(provider, prepare, settings):
    settings.PROVIDER_NETWORKS = ("127.0.0.1/32",)

    collect(prepare("openai_compatible", base_url=provider.url))

    assert len(provider.requests) == 1


def test_other_network_stays_closed(provider, prepare, settings):
    settings.PROVIDER_NETWORKS = ("10.0.0.0/8",)

    with pytest.raises(errors.AddressBlocked):
        collect(prepare("openai_compatible", base_url=provider.url))

    assert provider.requests == []


def test_redirect_into_the_network_is_not_followed(provider, prepare, settings):
    settings.PROVIDER_NETWORKS = ("127.0.0.1/32",)
    provider.answer = Reply(status=307, headers={"location": f"{provider.url}/inner"})

    with pytest.raises(errors.ProviderFailure, match="redirects are not followed"):
        collect(prepare("openai_compatible", base_url=provider.url))

    assert len(provider.requests) == 1
