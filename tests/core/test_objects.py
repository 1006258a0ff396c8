"""Object storage in local files and in S3."""

from __future__ import annotations

import pytest
from django.core.exceptions import SuspiciousOperation
from django.core.files.storage import storages

from apps.core import errors, object_storage


@pytest.fixture(scope="module")
def s3_server():
    """A server with the S3 API."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


def configure_storage(settings, backend, **options):
    default = {"BACKEND": f"apps.core.object_storage.{backend}", "OPTIONS": options}
    settings.STORAGES = settings.STORAGES | {"default": default}


@pytest.fixture(params=["folder", "bucket"])
def storage(request, settings, tmp_path):
    if request.param == "folder":
        configure_storage(settings, "files.FileObjectStorage", location=tmp_path / "objects")
        yield
        return
    keys = {"access_key": "id", "secret_key": "secret", "region_name": "us-east-1"}
    url = request.getfixturevalue("s3_server")
    configure_storage(
        settings,
        "s3.S3ObjectStorage",
        bucket_name="bucket",
        endpoint_url=url,
        location="pre",
        **keys,
    )
    bucket = storages["default"].connection
    bucket.create_bucket(Bucket="bucket")
    yield
    bucket.meta.client.close()


@pytest.mark.usefixtures("storage")
class TestEitherStorage:
    def test_stored_object_can_be_read(self):
        object_storage.put("a/b/c", b"one")
        object_storage.put("a/b/c", b"one")

        assert object_storage.get("a/b/c") == b"one"
        with object_storage.reader("a/b/c") as file:
            assert (file.read(2), file.read()) == (b"on", b"e")

    def test_missing_object_raises_file_not_found(self):
        with pytest.raises(FileNotFoundError):
            object_storage.get("a/none")
        with pytest.raises(FileNotFoundError):
            object_storage.reader("a/none")

    def test_remove_deletes_only_the_given_objects(self):
        for name in ("one", "two", "three"):
            object_storage.put(f"a/{name}", b"x")

        object_storage.remove(["a/one", "a/never", "a/two"])

        assert object_storage.get("a/three") == b"x"
        for name in ("one", "two"):
            with pytest.raises(FileNotFoundError):
                object_storage.get(f"a/{name}")

    def test_remove_folder_deletes_everything_below(self):
        object_storage.put("runs/1/a", b"x")
        object_storage.put("runs/1/b/c", b"x")
        object_storage.put("runs/11/a", b"x")

        object_storage.remove_folder("runs/1")
        object_storage.remove_folder("runs/never")

        for path in ("runs/1/a", "runs/1/b/c"):
            with pytest.raises(FileNotFoundError):
                object_storage.get(path)
        assert object_storage.get("runs/11/a") == b"x"

    @pytest.mark.parametrize("path", ["../out", "/etc/passwd", "a/../../out"])
    def test_path_outside_the_storage_is_refused(self, path):
        with pytest.raises(SuspiciousOperation):
            object_storage.put(path, b"x")


def test_unwritable_folder_is_unavailable(settings, tmp_path):
    (tmp_path / "file").write_text("in the way")
    configure_storage(settings, "files.FileObjectStorage", location=tmp_path / "file")

    with pytest.raises(errors.Unavailable):
        object_storage.put("a/b", b"x")


def test_unreachable_bucket_is_unavailable(settings):
    configure_storage(
        settings,
        "s3.S3ObjectStorage",
        bucket_name="bucket",
        endpoint_url="http://127.0.0.1:1",
        access_key="id",
        secret_key="secret",
        region_name="us-east-1",
    )

    with pytest.raises(errors.Unavailable):
        object_storage.put("a/b", b"x")


def test_failed_write_leaves_no_partial_file(settings, tmp_path, monkeypatch):
    configure_storage(settings, "files.FileObjectStorage", location=tmp_path)
    object_storage.put("a/whole", b"x")

    def raise_disk_full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", raise_disk_full)
    with pytest.raises(errors.Unavailable):
        object_storage.put("a/half", b"x")

    assert [file.name for file in (tmp_path / "a").iterdir()] == ["whole"]
