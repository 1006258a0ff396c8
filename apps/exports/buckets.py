"""Writer to a bucket of S3 or of an S3-compatible server."""

from __future__ import annotations

import weakref
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from apps.exports.errors import WriteFailed
from apps.exports.models import Destination
from apps.exports.ssrf_guard import restrict_to_public_addresses


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
        restrict_to_public_addresses(self._client)
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
