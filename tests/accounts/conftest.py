from __future__ import annotations

import re

import pytest
from django.core.cache import cache
from django.test import Client
from django.utils import timezone

from apps.organizations.models import User

PASSWORD = "a long and odd password"


@pytest.fixture(autouse=True)
def enable_email(settings, mailoutbox):
    """A mail server that collects the emails."""
    settings.EMAIL_HOST = "mail.example"
    settings.ACCOUNT_EMAIL_VERIFICATION = "mandatory"
    settings.MFA_ALLOW_UNVERIFIED_EMAIL = False
    cache.clear()  # it has the rate limits of emails
    return mailoutbox


@pytest.fixture
def open_sign_up(settings):
    settings.SIGN_UP = True


def sign_up(client: Client, email: str = "ada@example.com", **fields: str):
    body = {"email": email, "password1": PASSWORD, **fields}
    return client.post("/sign-up", body)


def sign_in(client: Client, email: str, password: str = PASSWORD, **fields: str):
    return client.post("/sign-in", {"email": email, "password": password, **fields})


def find_link(mail) -> str:
    """Return the path of the first link in an email."""
    return re.search(r"https?://[^/\s]+(/\S+)", mail.body)[1]


def is_signed_in(client: Client) -> bool:
    return "_auth_user_id" in client.session


def create_user(email: str) -> User:
    """Create a user with a verified address."""
    return User.objects.create_user(email, PASSWORD, email_verified_at=timezone.now())
