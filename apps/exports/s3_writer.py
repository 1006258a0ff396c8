"""Writer to a bucket of S3 or of an S3-compatible server, with SSRF protection.

A tenant chooses the endpoint. A check before the connection is not safe, because the name may
resolve to another address later. The peer address is checked after the connection is open, before
any byte is sent.
"""

from __future__ import annotations

import ipaddress
import socket
import weakref
from typing import Any

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
        self._prefixed = f"{self._name}/" if config.get("include_bucket_in_prefix") else ""
        self._client: Any = boto3.client(
            "s3",
            region_name=config.get("region") or None,
            endpoint_url=config.get("endpoint_url") or None,
            aws_access_key_id=credentials.get("access_key_id"),
            aws_secret_access_key=credentials.get("secret_access_key"),
            aws_session_token=credentials.get("session_token") or None,
            config=Config(connect_timeout=5, read_timeout=60, retries={"total_max_attempts": 3}),
        )
        _restrict_to_public_addresses(self._client)
        # The client is part of a reference cycle: without this, its connections stay open until
        # the next garbage collection.
        weakref.finalize(self, self._client.close)

    def path(self, key: str) -> str:
        return f"{self._name}/{self._prefixed}{key}"

    def put(self, key: str, content: bytes) -> None:
        try:
            self._client.put_object(Bucket=self._name, Key=self._prefixed + key, Body=content)
        except (BotoCoreError, ClientError, ValueError) as error:
            raise WriteFailed(str(error)) from error

    def remove(self, key: str) -> None:
        try:
            self._client.delete_object(Bucket=self._name, Key=self._prefixed + key)
        except (BotoCoreError, ClientError):
            return  # the credentials need no permission to delete


def _restrict_to_public_addresses(client: Any) -> None:
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
