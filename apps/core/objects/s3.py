"""Objects in a bucket of S3, or of a server that speaks its protocol."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from storages.backends.s3 import S3Storage

_ABSENT = {"404", "NoSuchKey", "NotFound"}
_AT_ONCE = 1000


class Bucket(S3Storage):  # type: ignore[misc]  # untyped
    """See `ObjectStorage`. S3 shows an object whole or not at all, and loses none."""

    client_config: Any

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # A request's thread waits for it.
        patience = Config(connect_timeout=3, read_timeout=20, retries={"total_max_attempts": 3})
        self.client_config = self.client_config.merge(patience)

    def put(self, path: str, content: bytes) -> None:
        with _failures(path):
            self.connection.meta.client.put_object(
                Bucket=self.bucket_name, Key=self._key(path), Body=content
            )

    def get(self, path: str) -> bytes:
        with _failures(path):
            found = self.bucket.Object(self._key(path)).get()
            content: bytes = found["Body"].read()
            return content

    def reader(self, path: str) -> BinaryIO:
        with _failures(path):
            return cast("BinaryIO", self.bucket.Object(self._key(path)).get()["Body"])

    def remove(self, paths: Iterable[str]) -> None:
        keys = iter([{"Key": self._key(path)} for path in paths])
        while chunk := list(itertools.islice(keys, _AT_ONCE)):
            with _failures("objects"):
                self.bucket.delete_objects(Delete={"Objects": chunk, "Quiet": True})

    def remove_folder(self, path: str) -> None:
        with _failures(path):
            self.bucket.objects.filter(Prefix=self._key(path) + "/").delete()

    def _key(self, path: str) -> str:
        key: str = self._normalize_name(path)
        return key


@contextmanager
def _failures(what: str) -> Iterator[None]:
    """A client's failures as those of a file."""
    try:
        yield
    except ClientError as error:
        if error.response.get("Error", {}).get("Code") in _ABSENT:
            raise FileNotFoundError(what) from error
        raise OSError(str(error)) from error
    except BotoCoreError as error:
        raise OSError(str(error)) from error
