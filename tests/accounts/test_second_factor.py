"""Codes of an authenticator app."""

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import (
    format_hotp_value,
    hotp_value,
    yield_hotp_counters_from_time,
)
from django.test import Client

from apps.core import secrets
from tests.accounts.conftest import PASSWORD, create_user, is_signed_in, sign_in

pytestmark = pytest.mark.django_db


def totp_code(secret: str) -> str:
    return format_hotp_value(hotp_value(secret, next(iter(yield_hotp_counters_from_time()))))


@pytest.fixture
def ada():
    return create_user("ada@example.com")


@pytest.fixture
def secret(client, ada):
    """The shared secret of a second factor that was turned on."""
    sign_in(client, ada.email)
    page = client.get("/account/second-factor/on")
    client.post(page["Location"], {"password": PASSWORD})
    page = client.get("/account/second-factor/on")
    secret = page.context["form"].secret
    response = client.post("/account/second-factor/on", {"code": totp_code(secret)})
    assert response["Location"] == "/account/recovery-codes"
    return secret


def test_sign_in_with_a_second_factor_requires_a_code(ada, secret):
    new_client = Client()

    response = sign_in(new_client, ada.email)

    assert response["Location"].startswith("/account/second-factor/code")
    assert not is_signed_in(new_client)
    wrong = new_client.post("/account/second-factor/code", {"code": "000000"})
    assert wrong.status_code == 422
    assert not is_signed_in(new_client)


def test_authenticator_code_signs_in_and_redirects(ada, secret, mailoutbox):
    new_client = Client()
    sign_in(new_client, ada.email, next="/account/sessions")
    Authenticator.objects.get(user=ada, type="totp")

    response = new_client.post("/account/second-factor/code", {"code": totp_code(secret)})

    assert is_signed_in(new_client)
    assert response["Location"] == "/account/sessions"


def test_recovery_code_signs_in_once(client, ada, secret):
    codes = client.get("/account/recovery-codes").context["unused_codes"]
    first, second = Client(), Client()
    for recovery_client in (first, second):
        sign_in(recovery_client, ada.email)
        recovery_client.post("/account/second-factor/code", {"code": codes[0]})

    assert (is_signed_in(first), is_signed_in(second)) == (True, False)


def test_stored_second_factor_is_encrypted(ada, secret):
    row = Authenticator.objects.get(user=ada, type="totp")

    assert secret not in str(row.data)
    assert secrets.decrypt(row.data["secret"].encode()) == secret


def test_sign_in_after_removing_the_second_factor_requires_the_password_only(client, ada, secret):
    client.post("/account/second-factor/off")
    new_client = Client()

    sign_in(new_client, ada.email)

    assert is_signed_in(new_client)
