"""Objects in S3 or a compatible server."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from storages.backends.s3 import S3Storage

_NOT_FOUND_CODES = {"404", "NoSuchKey", "NotFound"}
_DELETE_BATCH_SIZE = 1000


class S3ObjectStorage(S3Storage):  # type: ignore[misc]  # untyped
    """See `ObjectStorage`. Writes to S3 are atomic and durable."""

    client_config: Any

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # Request threads wait for these calls.
        timeouts = Config(connect_timeout=3, read_timeout=20, retries={"total_max_attempts": 3})
        self.client_config = self.client_config.merge(timeouts)

    def put(self, path: str, content: bytes) -> None:
        with _as_file_errors(path):
            self.connection.meta.client.put_object(
                Bucket=self.bucket_name, Key=self._key(path), Body=content
            )

    def get(self, path: str) -> bytes:
        with _as_file_errors(path):
            response = self.bucket.Object(self._key(path)).get()
            content: bytes = response["Body"].read()
            return content

    def reader(self, path: str) -> BinaryIO:
        with _as_file_errors(path):
            return cast("BinaryIO", self.bucket.Object(self._key(path)).get()["Body"])

    def remove(self, paths: Iterable[str]) -> None:
        keys = iter([{"Key": self._key(path)} for path in paths])
        while chunk := list(itertools.islice(keys, _DELETE_BATCH_SIZE)):
            with _as_file_errors("objects"):
                self.bucket.delete_objects(Delete={"Objects": chunk, "Quiet": True})

    def remove_folder(self, path: str) -> None:
        with _as_file_errors(path):
            self.bucket.objects.filter(Prefix=self._key(path) + "/").delete()

    def _key(self, path: str) -> str:
        key: str = self._normalize_name(path)
        return key


@contextmanager
def _as_file_errors(path: str) -> Iterator[None]:
    """Convert errors of the S3 client to `OSError`, and absent objects to `FileNotFoundError`."""
    try:
        yield
    except ClientError as error:
        if error.response.get("Error", {}).get("Code") in _NOT_FOUND_CODES:
            raise FileNotFoundError(path) from error
        raise OSError(str(error)) from error
    except BotoCoreError as error:
        raise OSError(str(error)) from error
