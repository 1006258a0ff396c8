"""Writer to a bucket of S3 or of an S3-compatible server, with SSRF protection.

A tenant chooses the endpoint. Its host is resolved once for each connection, which is opened to the
checked addresses. Proxies of the environment are not used: they would resolve the name again.
"""

from __future__ import annotations

import socket
import weakref
from collections.abc import Iterator
from typing import Any

import boto3
from botocore.awsrequest import (
    AWSHTTPConnection,
    AWSHTTPConnectionPool,
    AWSHTTPSConnection,
    AWSHTTPSConnectionPool,
)
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
from django.conf import settings
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError
from urllib3.util.connection import create_connection

from apps.core import ssrf
from apps.exports.deadline import current_deadline
from apps.exports.errors import WriteFailed
from apps.exports.models import Destination
from apps.webhooks.policy import WebhookBlocked, WebhookPolicy

MAX_RESPONSE_BYTES = 1_048_576


class BucketWriter:
    """Writes to the bucket of a destination. Raises `WriteFailed` for a malformed one."""

    def __init__(self, destination: Destination) -> None:
        config, credentials = destination.config, destination.credentials()
        self._name = str(config["bucket_name"])
        self._key_prefix = f"{self._name}/" if config.get("include_bucket_in_prefix") else ""
        options = Config(
            connect_timeout=5, read_timeout=60, retries={"total_max_attempts": 3}, proxies={}
        )
        endpoint_url = config.get("endpoint_url") or None
        try:
            if endpoint_url is not None:
                # Parsers disagree about user names and backslashes.
                WebhookPolicy().parse_target(endpoint_url)
            self._client: Any = boto3.client(
                "s3",
                region_name=config.get("region") or None,
                endpoint_url=endpoint_url,
                aws_access_key_id=credentials.get("access_key_id"),
                aws_secret_access_key=credentials.get("secret_access_key"),
                aws_session_token=credentials.get("session_token") or None,
                config=options,
            )
        except WebhookBlocked as error:
            raise WriteFailed(f"Endpoint: {error.reason}") from None
        except (BotoCoreError, ValueError) as error:
            raise WriteFailed(str(error)) from error
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
            raise WriteFailed(_describe(error)) from error

    def remove(self, key: str) -> None:
        try:
            self._client.delete_object(Bucket=self._name, Key=self._key_prefix + key)
        except (BotoCoreError, ClientError):
            return  # credentials without permission to delete are accepted


def _describe(error: Exception) -> str:
    cause = error.kwargs.get("error") if isinstance(error, HTTPClientError) else None
    if isinstance(cause, ssrf.PrivateAddress):
        return f"The host {cause} is on this machine or on a private network."
    if isinstance(cause, _ResponseTooLarge):
        return f"The response has more than {MAX_RESPONSE_BYTES} bytes."
    return str(error)


def _set_connection_classes(client: Any) -> None:
    """Make a boto client check the addresses and deadlines of its connections."""
    # botocore has no public API for this.
    manager = client._endpoint.http_session._manager  # noqa: SLF001
    manager.pool_classes_by_scheme = {"http": _Pool, "https": _SecurePool}


class _Connection(AWSHTTPConnection):  # type: ignore[misc]  # untyped
    def _new_conn(self) -> socket.socket:
        return _connect(self)


class _SecureConnection(AWSHTTPSConnection):  # type: ignore[misc]  # untyped
    def _new_conn(self) -> socket.socket:
        return _connect(self)


class _Pool(AWSHTTPConnectionPool):  # type: ignore[misc]  # untyped
    ConnectionCls = _Connection

    def urlopen(self, *arguments: Any, **options: Any) -> Any:
        return _bound(super().urlopen(*arguments, **options))


class _SecurePool(AWSHTTPSConnectionPool):  # type: ignore[misc]  # untyped
    ConnectionCls = _SecureConnection

    def urlopen(self, *arguments: Any, **options: Any) -> Any:
        return _bound(super().urlopen(*arguments, **options))


class _ResponseTooLarge(Exception):
    """botocore does not try again after it."""


def _bound(response: Any) -> Any:
    """Let botocore read a part of the response only: it reads all of it into memory."""
    stream = response.stream

    def read(*arguments: Any, **options: Any) -> Iterator[bytes]:
        size = 0
        for piece in stream(*arguments, **options):
            size += len(piece)
            if size > MAX_RESPONSE_BYTES:
                response.close()
                raise _ResponseTooLarge
            yield piece

    response.stream = read
    return response


def _connect(connection: Any) -> socket.socket:
    """Open a connection to a checked address, for which the deadline holds.

    Raises `PrivateAddress`, after which botocore does not try again, and errors of urllib3.
    """
    failure: Exception = NewConnectionError(connection, "The host has no address.")
    for address in _resolve(connection):
        try:
            sock = create_connection(
                (str(address), connection.port),
                connection.timeout,
                source_address=connection.source_address,
                socket_options=connection.socket_options,
            )
        except TimeoutError:
            failure = ConnectTimeoutError(connection, "The connection timed out.")
        except OSError as error:
            failure = NewConnectionError(connection, f"No connection: {error}.")
        else:
            if (deadline := current_deadline()) is not None:
                deadline.watch(sock)
            return sock
    raise failure


def _resolve(connection: Any) -> list[ssrf.IPAddress]:
    """Return the addresses, of which none is private unless the operator allows them."""
    host = connection.host.strip("[]")
    try:
        addresses = ssrf.resolve(host)
    except ssrf.ResolutionFailed:
        raise NewConnectionError(connection, f"The host {host} cannot be resolved.") from None
    if settings.ALLOW_PRIVATE_ADDRESSES:
        return addresses
    return ssrf.require_public(host, addresses)
