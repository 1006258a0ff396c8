"""Connections to buckets that tenants name: to public machines only.

Looking the name up beforehand would not do, because it may lead elsewhere a moment later. So the
address is looked at once the connection stands, before a byte is sent.
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


def guard(client: Any) -> None:
    """Keep a boto client from machines that only this one or its network can reach."""
    if not settings.ALLOW_PRIVATE_ADDRESSES:
        # botocore has no public place for this.
        manager = client._endpoint.http_session._manager  # noqa: SLF001
        manager.pool_classes_by_scheme = {"http": _Pool, "https": _SecurePool}


class _Connection(AWSHTTPConnection):  # type: ignore[misc]  # untyped
    def _new_conn(self) -> socket.socket:
        return _looked_at(self, super()._new_conn())


class _SecureConnection(AWSHTTPSConnection):  # type: ignore[misc]  # untyped
    def _new_conn(self) -> socket.socket:
        return _looked_at(self, super()._new_conn())


class _Pool(AWSHTTPConnectionPool):  # type: ignore[misc]  # untyped
    ConnectionCls = _Connection


class _SecurePool(AWSHTTPSConnectionPool):  # type: ignore[misc]  # untyped
    ConnectionCls = _SecureConnection


def _looked_at(connection: Any, made: socket.socket) -> socket.socket:
    address = str(made.getpeername()[0]).partition("%")[0]
    if is_public(ipaddress.ip_address(address)):
        return made
    made.close()
    raise NewConnectionError(connection, "It leads to this machine or to a private network.")
