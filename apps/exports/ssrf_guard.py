"""SSRF protection for S3 clients with a tenant's endpoint: connect to public addresses only.

A check before the connection is not safe, because the name may resolve to another address later.
The peer address is checked after the connection is open, before any byte is sent.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import Any

from botocore.awsrequest import (
    AWSHTTPConnection,
    AWSHTTPConnectionPool,
    AWSHTTPSConnection,
    AWSHTTPSConnectionPool,
)
from django.conf import settings
from urllib3.exceptions import NewConnectionError

from apps.core.ssrf import is_public


def restrict_to_public_addresses(client: Any) -> None:
    """Make a boto client refuse connections to private addresses."""
    if not settings.ALLOW_PRIVATE_ADDRESSES:
        # botocore has no public API for this.
        manager = client._endpoint.http_session._manager  # noqa: SLF001
        manager.pool_classes_by_scheme = {"http": _Pool, "https": _SecurePool}


class _Connection(AWSHTTPConnection):  # type: ignore[misc]  # untyped
    def _new_conn(self) -> socket.socket:
        return _require_public(self, super()._new_conn())


class _SecureConnection(AWSHTTPSConnection):  # type: ignore[misc]  # untyped
    def _new_conn(self) -> socket.socket:
        return _require_public(self, super()._new_conn())


class _Pool(AWSHTTPConnectionPool):  # type: ignore[misc]  # untyped
    ConnectionCls = _Connection


class _SecurePool(AWSHTTPSConnectionPool):  # type: ignore[misc]  # untyped
    ConnectionCls = _SecureConnection


def _require_public(connection: Any, sock: socket.socket) -> socket.socket:
    address = str(sock.getpeername()[0]).partition("%")[0]
    if is_public(ipaddress.ip_address(address)):
        return sock
    sock.close()
    raise NewConnectionError(connection, "The endpoint resolves to a private address.")
