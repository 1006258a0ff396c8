import os
import socket
from pathlib import Path
from uuid import uuid4

import pytest

from apps.core.instance import MAX_SOCKET_PATH, Instance, UnsafeSocketFolder
from config.embedded.launch import CannotStart
from config.supervisor.instance_lock import claim_data_folder, open_listener


def test_sockets_are_in_the_data_folder():
    instance = Instance(Path("/srv/slipway"))

    assert instance.redis_url == "unix:///srv/slipway/sockets/redis.sock?db=0"
    assert instance.database_url == "postgresql://slipway@/slipway?host=%2Fsrv%2Fslipway%2Fsockets"


def test_a_long_data_folder_path_gets_a_short_socket_folder():
    long = Path("/srv", "x" * 120)

    sockets = Instance(long).socket_dir

    assert sockets.parent == Path("/tmp")
    assert len(str(sockets / ".s.PGSQL.5432.lock")) <= MAX_SOCKET_PATH
    assert sockets == Instance(long).socket_dir
    assert sockets != Instance(long / "y").socket_dir


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can create a folder of another user")
def test_a_socket_folder_of_another_user_is_rejected():
    # A folder of its own in /tmp for each run of this test.
    instance = Instance(Path("/srv", f"owned by another user {uuid4()} " * 3))
    sockets = instance.socket_dir
    sockets.mkdir(mode=0o700)
    os.chown(sockets, 54321, 54321)

    try:
        with pytest.raises(
            UnsafeSocketFolder, match="is not a private folder of this installation"
        ):
            _ = Instance(instance.data_dir).socket_dir
    finally:
        sockets.rmdir()


def test_a_socket_folder_that_others_may_enter_is_rejected():
    instance = Instance(Path("/srv", f"open to all users {uuid4()} " * 3))
    sockets = instance.socket_dir
    sockets.mkdir(mode=0o755)

    try:
        with pytest.raises(UnsafeSocketFolder):
            _ = Instance(instance.data_dir).socket_dir
    finally:
        sockets.rmdir()


def test_a_data_folder_has_one_supervisor(tmp_path):
    instance = Instance(tmp_path / "data")
    lock = claim_data_folder(instance)

    with pytest.raises(CannotStart) as error_info:
        claim_data_folder(instance)

    assert str(error_info.value) == (
        f"Slipway already runs on the data folder {tmp_path / 'data'} (process {os.getpid()}); "
        "set DATA_DIR to run another instance."
    )
    os.close(lock)
    os.close(claim_data_folder(instance))


def test_control_files_and_logs_are_private_to_their_owner(tmp_path):
    instance = Instance(tmp_path / "data")
    os.close(claim_data_folder(instance))

    assert oct(instance.run_dir.stat().st_mode & 0o777) == "0o700"
    assert oct(instance.log_dir.stat().st_mode & 0o777) == "0o700"


def test_a_data_folder_that_is_a_file_is_refused(tmp_path):
    tmp_path.joinpath("data").write_text("not a folder")

    with pytest.raises(CannotStart, match=r"^The data folder .*/data cannot be used: "):
        claim_data_folder(Instance(tmp_path / "data"))


def test_a_full_disk_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("config.supervisor.instance_lock.MIN_FREE_MB", 1 << 30)

    with pytest.raises(CannotStart, match=r"^The disk of the data folder .* is full: "):
        claim_data_folder(Instance(tmp_path / "data"))


def test_a_taken_port_is_refused_with_an_alternative():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]

        with pytest.raises(CannotStart) as error_info:
            open_listener("127.0.0.1", port)

    assert str(error_info.value) == (
        f"Port {port} is used by another program: choose another with PORT, for example "
        f"`make up PORT={port + 1}`."
    )
