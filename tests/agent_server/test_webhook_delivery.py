"""Sending webhooks over TLS to the address that was checked."""

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

from apps.webhooks import delivery_request
from apps.webhooks.delivery_request import DeliveryResult, WebhookRequest
from apps.webhooks.policy import WebhookPolicy
from tests.receiver import Receiver

HOST = "hooks.example"
OPEN = WebhookPolicy(allows_private=True)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory) -> Path:
    """A certificate that is valid only for `hooks.example`."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST)])
    now = datetime.now(UTC)
    issued = (
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
        issued.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return path


@pytest.fixture
def resolved_names(monkeypatch):
    """The names that were resolved; every name resolves to this machine."""
    hosts: list[str] = []
    real = socket.getaddrinfo

    def resolve_to_loopback(host, *args, **options):
        try:
            ipaddress.ip_address(host)
        except ValueError:
            hosts.append(host)
            host = "127.0.0.1"
        return real(host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve_to_loopback)
    return hosts


@pytest.fixture
def receiver(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with Receiver(tls=context) as receiver:
        yield receiver


def make_request(url, rules=OPEN) -> WebhookRequest:
    return WebhookRequest(
        rules.parse_target(url), rules, {"content-type": "application/json"}, b"{}"
    )


async def test_tls_checks_the_host_name_of_the_url(
    receiver, resolved_names, certificate, monkeypatch
):
    monkeypatch.setattr(
        delivery_request, "_tls", lambda: ssl.create_default_context(cafile=certificate)
    )

    result = await delivery_request.send(make_request(f"https://{HOST}:{receiver.port}/a?b=c"))

    assert result == DeliveryResult(200)
    received = receiver.next()
    assert (received.path, received.headers["host"]) == ("/a?b=c", f"{HOST}:{receiver.port}")
    # Resolved once: a second lookup could give another address after the check.
    assert resolved_names == [HOST]


async def test_certificate_of_an_unknown_authority_is_rejected(receiver, resolved_names):

    result = await delivery_request.send(make_request(f"https://{HOST}:{receiver.port}/"))

    assert result.error.startswith("The certificate is invalid:")
    assert not result.is_final
    assert receiver.count_unread == 0


async def test_certificate_of_another_host_is_rejected(
    receiver, resolved_names, certificate, monkeypatch
):
    monkeypatch.setattr(
        delivery_request, "_tls", lambda: ssl.create_default_context(cafile=certificate)
    )

    result = await delivery_request.send(make_request(f"https://other.example:{receiver.port}/"))

    assert "Hostname mismatch" in result.error
    assert receiver.count_unread == 0


async def test_name_that_resolves_to_a_private_address_is_rejected(receiver, resolved_names):

    result = await delivery_request.send(
        make_request(f"http://{HOST}:{receiver.port}/", WebhookPolicy())
    )

    assert result.is_final
    assert result.error == (
        "Webhook host blocked: hooks.example is on this machine or on a private network."
    )
    assert receiver.count_unread == 0


async def test_unresponsive_receiver_times_out():
    finished = threading.Event()
    with Receiver() as silent:
        silent.hold = lambda: finished.wait(120) or None
        result = await delivery_request.send(make_request(silent.url), seconds=0.2)
        finished.set()

    assert result == DeliveryResult(error="There was no response within 0.2 s.")


@pytest.mark.parametrize("value", ["hunter2\r\nx-c: d", "hunter2é", "hunter2\0"])
async def test_invalid_headers_are_a_final_failure_that_does_not_quote_them(value):
    with Receiver() as receiver:
        target = OPEN.parse_target(receiver.url)
        result = await delivery_request.send(WebhookRequest(target, OPEN, {"x-a": value}, b"{}"))

    assert result.is_final
    assert result.error == "The request has a header that is not valid in HTTP."
    assert receiver.count_unread == 0
