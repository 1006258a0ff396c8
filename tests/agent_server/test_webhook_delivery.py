"""Sending over TLS, to the very address that was checked."""

from __future__ import annotations

import ipaddress
import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from apps.agent_server.webhooks import sending
from apps.agent_server.webhooks.rules import WebhookPolicy
from apps.agent_server.webhooks.sending import DeliveryResult, WebhookRequest
from tests.receiver import Receiver

HOST = "hooks.example"
OPEN = WebhookPolicy(allows_private=True)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory) -> Path:
    """Good for `hooks.example` alone."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    path.write_bytes(
        made.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return path


@pytest.fixture
def names(monkeypatch):
    """How often a name was looked up; every name leads to this machine."""
    asked: list[str] = []
    real = socket.getaddrinfo

    def look_up(host, *args, **more):
        try:
            ipaddress.ip_address(host)
        except ValueError:
            asked.append(host)
            host = "127.0.0.1"
        return real(host, *args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return asked


@pytest.fixture
def receiver(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with Receiver(tls=context) as receiver:
        yield receiver


def letter(url, rules=OPEN) -> WebhookRequest:
    return WebhookRequest(rules.target(url), rules, {"content-type": "application/json"}, b"{}")


async def test_tls_checks_the_host_name_of_the_url(receiver, names, certificate, monkeypatch):
    monkeypatch.setattr(sending, "_tls", lambda: ssl.create_default_context(cafile=certificate))

    outcome = await sending.send(letter(f"https://{HOST}:{receiver.port}/a?b=c"))

    assert outcome == DeliveryResult(200)
    got = receiver.next()
    assert (got.path, got.headers["host"]) == ("/a?b=c", f"{HOST}:{receiver.port}")
    # Once: nobody may answer differently between the check and the connection.
    assert names == [HOST]


async def test_certificate_of_an_unknown_authority_is_rejected(receiver, names):

    outcome = await sending.send(letter(f"https://{HOST}:{receiver.port}/"))

    assert outcome.error.startswith("The certificate is not good:")
    assert not outcome.is_final
    assert receiver.count_unread == 0


async def test_certificate_of_another_host_is_rejected(receiver, names, certificate, monkeypatch):
    monkeypatch.setattr(sending, "_tls", lambda: ssl.create_default_context(cafile=certificate))

    outcome = await sending.send(letter(f"https://other.example:{receiver.port}/"))

    assert "Hostname mismatch" in outcome.error
    assert receiver.count_unread == 0


async def test_name_that_resolves_to_a_private_address_is_rejected(receiver, names):

    outcome = await sending.send(letter(f"http://{HOST}:{receiver.port}/", WebhookPolicy()))

    assert outcome.is_final
    assert outcome.error == (
        "Webhook host blocked: hooks.example is on this machine or on a private network."
    )
    assert receiver.count_unread == 0


async def test_unresponsive_receiver_times_out():
    over = threading.Event()
    with Receiver() as silent:
        silent.hold = lambda: over.wait(30) or None
        outcome = await sending.send(letter(silent.url), seconds=0.2)
        over.set()

    assert outcome == DeliveryResult(error="There was no answer within 0.2 s.")


async def test_invalid_headers_are_a_final_failure():
    with Receiver() as receiver:
        target = OPEN.target(receiver.url)
        outcome = await sending.send(WebhookRequest(target, OPEN, {"x-a": "b\r\nx-c: d"}, b"{}"))

    assert outcome.is_final
    assert outcome.error.startswith("The request cannot be made:")
    assert receiver.count_unread == 0
