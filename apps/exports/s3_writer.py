"""Writer to a bucket of S3 or of an S3-compatible server, with SSRF protection.

A tenant chooses the endpoint. A check of its host name is not safe, because the name may resolve
to another address when the connection is opened. Therefore the peer address is checked on the open
connection, before any byte is sent.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import threading
import weakref
from contextvars import ContextVar
from typing import Any, Self

import boto3
from botocore.awsrequest import (
    AWSHTTPConnection,
    AWSHTTPConnectionPool,
    AWSHTTPSConnection,
    AWSHTTPSConnectionPool,
)
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from django.conf import settings
from urllib3.exceptions import NewConnectionError

from apps.core.ssrf import is_public
from apps.exports.errors import WriteFailed
from apps.exports.models import Destination


class BucketWriter:
    """Writes to the bucket of a destination."""

    def __init__(self, destination: Destination) -> None:
        config, credentials = destination.config, destination.credentials()
        self._name = str(config["bucket_name"])
        self._key_prefix = f"{self._name}/" if config.get("include_bucket_in_prefix") else ""
        self._client: Any = boto3.client(
            "s3",
            region_name=config.get("region") or None,
            endpoint_url=config.get("endpoint_url") or None,
            aws_access_key_id=credentials.get("access_key_id"),
            aws_secret_access_key=credentials.get("secret_access_key"),
            aws_session_token=credentials.get("session_token") or None,
            config=Config(connect_timeout=5, read_timeout=60, retries={"total_max_attempts": 3}),
        )
        _set_connection_classes(self._client)
        # The client is part of a reference cycle: without the finalizer, its connections stay open
        # until the next garbage collection.
        weakref.finalize(self, self._client.close)

    def path(self, key: str) -> str:
        return f"{self._name}/{self._key_prefix}{key}"

    def put(self, key: str, content: bytes) -> None:
        try:
            self._client.put_object(Bucket=self._name, Key=self._key_prefix + key, Body=content)
        except (BotoCoreError, ClientError, ValueError) as error:
            raise WriteFailed(str(error)) from error

    def remove(self, key: str) -> None:
        try:
            self._client.delete_object(Bucket=self._name, Key=self._key_prefix + key)
        except (BotoCoreError, ClientError):
            return  # credentials without permission to delete are accepted


class Deadline:
    """Ends the connections that the current thread opens in the block after some seconds.

    Timeouts of sockets restart with each byte, so a hostile server could hold the thread.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.has_expired = False
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()

    def watch(self, connection: socket.socket) -> None:
        with self._lock:
            # A duplicate stays valid when TLS takes the socket over.
            self._sockets.append(connection.dup())
        if self.has_expired:
            self._expire()

    def _expire(self) -> None:
        self.has_expired = True
        with self._lock:
            for connection in self._sockets:
                with contextlib.suppress(OSError):  # already closed by the server
                    connection.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        self._timer = threading.Timer(self.seconds, self._expire)
        self._timer.daemon = True
        self._timer.start()
        self._token = _deadline.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        _deadline.reset(self._token)
        with self._lock:
            for connection in self._sockets:
                connection.close()


_deadline: ContextVar[Deadline | None] = ContextVar("deadline", default=None)


def _set_connection_classes(client: Any) -> None:
    """Make a boto client check the addresses and deadlines of its connections."""
    # botocore has no public API for this.
    manager = client._endpoint.http_session._manager  # noqa: SLF001
    manager.pool_classes_by_scheme = {"http": _Pool, "https": _SecurePool}


class _Connection(AWSHTTPConnection):  # type: ignore[misc]  # untyped
    def _new_conn(self) -> socket.socket:
        return _check_connection(self, super()._new_conn())


class _SecureConnection(AWSHTTPSConnection):  # type: ignore[misc]  # untyped
    def _new_conn(self) -> socket.socket:
        return _check_connection(self, super()._new_conn())


class _Pool(AWSHTTPConnectionPool):  # type: ignore[misc]  # untyped
    ConnectionCls = _Connection


class _SecurePool(AWSHTTPSConnectionPool):  # type: ignore[misc]  # untyped
    ConnectionCls = _SecureConnection


def _check_connection(connection: Any, sock: socket.socket) -> socket.socket:
    """Refuse a private address, unless the operator allows them; apply the deadline."""
    if not settings.ALLOW_PRIVATE_ADDRESSES:
        _require_public(connection, sock)
    if (deadline := _deadline.get()) is not None:
        deadline.watch(sock)
    return sock


def _require_public(connection: Any, sock: socket.socket) -> None:
    address = str(sock.getpeername()[0]).partition("%")[0]
    if is_public(ipaddress.ip_address(address)):
        return
    sock.close()
    raise NewConnectionError(connection, "The endpoint resolves to a private address.")
