"""The operator opens networks to model providers; tests/security has the refused addresses."""

from __future__ import annotations

import pytest

from apps.providers import errors
from tests.providers.conftest import collect

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def production_policy(settings) -> None:
    settings.ALLOW_PRIVATE_ADDRESSES = settings.ALLOW_LOCAL_WEBHOOKS = False
    settings.PROVIDER_NETWORKS = ()


def test_network_that_the_operator_opened_is_reached(provider, prepare, settings):
    settings.PROVIDER_NETWORKS = ("127.0.0.1/32",)

    collect(prepare("openai_compatible", base_url=provider.url))

    assert len(provider.requests) == 1


def test_other_network_stays_closed(provider, prepare, settings):
    settings.PROVIDER_NETWORKS = ("10.0.0.0/8",)

    with pytest.raises(errors.AddressBlocked):
        collect(prepare("openai_compatible", base_url=provider.url))

    assert provider.requests == []
