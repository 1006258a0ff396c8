"""Values of tenants and secrets do not leak through logs, and keys can be replaced."""

from __future__ import annotations

import re
import secrets as random_secrets
from io import StringIO

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal.auth import TOTP
from cryptography.fernet import Fernet
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection

from apps.core import secrets
from apps.core.observability import slow_statements
from tests.factories.organizations import UserFactory

_SLOW = """
from django.db import connection, DatabaseError
with connection.cursor() as cursor:
    cursor.execute("SELECT pg_sleep(2.2), %s, '{word}-b'", ["{word}-a"])
    try:
        cursor.execute("SELECT 1 / (length(%s) - length(%s))", ["{word}-c", "{word}-c"])
    except DatabaseError as error:
        print(type(error).__name__)
    try:
        cursor.execute("CREATE TEMPORARY TABLE words (word text UNIQUE)")
        for _ in range(2):
            cursor.execute("INSERT INTO words VALUES (%s)", ["{word}-d"])
    except DatabaseError as error:
        print(type(error).__name__)
"""


def test_no_log_of_a_live_platform_has_values_of_statements(live):
    word = f"sentinel{random_secrets.token_hex(4)}"

    completed = live.manage("shell", "-c", _SLOW.format(word=word))

    assert completed.stdout.split()[-2:] == ["DataError", "IntegrityError"]
    logs = {
        path.name: path.read_text(errors="replace")
        for path in (live.installation.data_dir / "logs").glob("*.log")
    }
    assert "division by zero" in logs["postgres.log"]
    assert [name for name, text in logs.items() if word in text] == []
    assert word not in completed.stderr
    logged = r"A statement took \d+\.\d s: SELECT pg_sleep\(2\.2\), %s, '…'"
    assert re.search(logged, completed.stderr)


@pytest.mark.django_db
def test_slow_statement_is_logged_once_without_its_values(monkeypatch, caplog):
    monkeypatch.setattr(slow_statements, "SLOW_SECONDS", 0.0)

    with connection.cursor() as cursor:
        cursor.execute("SELECT %s,\n 'it''s private', 1", ["private"])

    assert [record.message for record in caplog.records] == [
        "A statement took 0.0 s: SELECT %s, '…', 1"
    ]


@pytest.fixture
def second_factor(settings):
    """A user with an authenticator app and recovery codes, encrypted with the first of two keys."""
    settings.ENCRYPTION_KEYS = (Fernet.generate_key().decode(),)
    user = UserFactory()
    totp = TOTP.activate(user, "JBSWY3DPEHPK3PXP")
    codes = RecoveryCodes.activate(user)
    return user, totp, codes.get_unused_codes()


@pytest.mark.django_db
def test_reencrypt_moves_second_factors_to_the_new_key(second_factor, settings):
    user, _, codes = second_factor
    other = UserFactory()
    migrated = [secrets.encrypt(code).decode() for code in ("11111111", "22222222")]
    Authenticator.objects.create(
        user=other, type="recovery_codes", data={"migrated_codes": migrated}
    )
    [old] = settings.ENCRYPTION_KEYS
    new = Fernet.generate_key().decode()

    settings.ENCRYPTION_KEYS = (new, old)
    call_command("reencrypt", stdout=StringIO())
    settings.ENCRYPTION_KEYS = (new,)

    totp = Authenticator.objects.get(user=user, type="totp")
    assert secrets.decrypt(totp.data["secret"].encode()) == "JBSWY3DPEHPK3PXP"
    assert codes_of(user) == codes
    assert codes_of(other) == ["11111111", "22222222"]


def codes_of(user):
    return RecoveryCodes(
        Authenticator.objects.get(user=user, type="recovery_codes")
    ).get_unused_codes()


@pytest.mark.django_db
def test_reencrypt_reports_second_factors_that_no_key_decrypts(second_factor, settings):
    user, _, _ = second_factor
    before = Authenticator.objects.filter(user=user).order_by("pk").values_list("data", flat=True)
    before = list(before)
    settings.ENCRYPTION_KEYS = (Fernet.generate_key().decode(),)

    with pytest.raises(CommandError, match="decrypts 2 secrets"):
        call_command("reencrypt", stdout=StringIO())

    rows = Authenticator.objects.filter(user=user).order_by("pk")
    assert list(rows.values_list("data", flat=True)) == before
