"""Where the files of an export are put."""

from __future__ import annotations

import weakref
from typing import Any, Protocol

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from apps.core import objects
from apps.core.ids import uuid7
from apps.exports.guarded import guard
from apps.exports.models import Destination, Kind


class NotWritten(Exception):
    """The file could not be put there; the text is for the destination's owner."""


class Writer(Protocol):
    def path(self, key: str) -> str:
        """How people find the file of that key."""

    def put(self, key: str, content: bytes) -> None:
        """Put the file, whole or not at all; the same key again replaces it. `NotWritten`."""

    def remove(self, key: str) -> None:
        """Remove the file if that is allowed."""


def writer_to(destination: Destination) -> Writer:
    if destination.kind == Kind.PLATFORM:
        return _Platform(destination)
    return _Bucket(destination)


def try_out(destination: Destination) -> None:
    """Write a test file; `NotWritten` says why that is not possible."""
    writer = writer_to(destination)
    key = "/".join(part for part in (destination.prefix, f"slipway-test-{uuid7()}") if part)
    writer.put(key, b"This file shows that exports can be written here.\n")
    writer.remove(key)


class _Platform:
    """The installation's own object storage, a folder for each workspace."""

    def __init__(self, destination: Destination) -> None:
        self._folder = f"exports/{destination.workspace_id}"

    def path(self, key: str) -> str:
        return f"{self._folder}/{key}"

    def put(self, key: str, content: bytes) -> None:
        objects.put(self.path(key), content)

    def remove(self, key: str) -> None:
        objects.remove([self.path(key)])


class _Bucket:
    """A bucket of S3, or of a server that speaks its protocol."""

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
        guard(self._client)
        # Its parts refer to each other, so connections would stay open until the collector comes.
        weakref.finalize(self, self._client.close)

    def path(self, key: str) -> str:
        return f"{self._name}/{self._prefixed}{key}"

    def put(self, key: str, content: bytes) -> None:
        try:
            self._client.put_object(Bucket=self._name, Key=self._prefixed + key, Body=content)
        except (BotoCoreError, ClientError, ValueError) as error:
            raise NotWritten(str(error)) from error

    def remove(self, key: str) -> None:
        try:
            self._client.delete_object(Bucket=self._name, Key=self._prefixed + key)
        except (BotoCoreError, ClientError):
            return  # the right to delete is not asked for
