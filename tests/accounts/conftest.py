from __future__ import annotations

import re

import pytest
from django.core.cache import cache
from django.test import Client
from django.utils import timezone

from apps.organizations.models import User

PASSWORD = "a long and odd password"


@pytest.fixture(autouse=True)
def mails_go_out(settings, mailoutbox):
    """A mail server that collects the emails."""
    settings.EMAIL_HOST = "mail.example"
    settings.ACCOUNT_EMAIL_VERIFICATION = "mandatory"
    settings.MFA_ALLOW_UNVERIFIED_EMAIL = False
    cache.clear()  # mails to one address are counted there
    return mailoutbox


@pytest.fixture
def open_door(settings):
    settings.SIGN_UP = True


def sign_up(client: Client, email: str = "ada@example.com", **more: str):
    body = {"email": email, "password1": PASSWORD, **more}
    return client.post("/sign-up", body)


def sign_in(client: Client, email: str, password: str = PASSWORD, **more: str):
    return client.post("/sign-in", {"email": email, "password": password, **more})


def link_in(mail) -> str:
    """The path of the first address in a mail."""
    return re.search(r"https?://[^/\s]+(/\S+)", mail.body)[1]


def is_in(client: Client) -> bool:
    return "_auth_user_id" in client.session


def person(email: str) -> User:
    """A user with a verified address."""
    return User.objects.create_user(email, PASSWORD, email_verified_at=timezone.now())
