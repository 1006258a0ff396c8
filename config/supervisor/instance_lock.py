"""Locking the data folder and opening the listening socket."""

import errno
import fcntl
import os
import shutil
import socket
from pathlib import Path

from apps.core.instance import Instance
from config.embedded.launch import CannotStart, private_folder

MIN_FREE_MB = 256


def claim_data_folder(instance: Instance) -> int:
    """Lock the data folder and return the lock's descriptor, released when the process ends.

    Raises `CannotStart` for a read-only folder, a full disk and a second supervisor.
    """
    folder = instance.data_dir
    try:
        if not folder.exists():
            folder.mkdir(parents=True)
            # Other users may traverse the folder but not list it.
            folder.chmod(0o711)
        private_folder(instance.run_dir)
        private_folder(instance.log_dir)
        _try_to_write(instance.run_dir)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise CannotStart(_disk_full_message(folder)) from None
        raise CannotStart(f"The data folder {folder} cannot be used: {error.strerror}.") from None
    if shutil.disk_usage(folder).free < MIN_FREE_MB << 20:
        raise CannotStart(_disk_full_message(folder))
    return _lock_instance(instance)


def _try_to_write(folder: Path) -> None:
    probe = folder / ".probe"
    probe.write_bytes(b"\0" * 4096)
    probe.unlink()


def _disk_full_message(folder: Path) -> str:
    return (
        f"The disk of the data folder {folder} is full: Slipway needs at least "
        f"{MIN_FREE_MB} MB of free space."
    )


def _lock_instance(instance: Instance) -> int:
    lock = os.open(instance.run_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(lock, 100, 0).decode()
        os.close(lock)
        raise CannotStart(
            f"Slipway already runs on the data folder {instance.data_dir} (process {holder}); "
            "set DATA_DIR to run another instance."
        ) from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode(), 0)
    return lock


def open_playground_listener(path: Path) -> socket.socket:
    """Open the socket on which web processes reach the playground's; only its user can connect."""
    private_folder(path.parent)
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    path.chmod(0o600)
    listener.listen(2048)
    listener.set_inheritable(True)
    return listener


def open_listener(host: str, port: int) -> socket.socket:
    """Open the listening socket of the web processes.

    The supervisor holds it: connections queue while a web process restarts.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise CannotStart(
                f"Port {port} is used by another program: choose another with PORT, for example "
                f"`make up PORT={port + 1}`."
            ) from None
        raise CannotStart(f"Port {port} of {host} cannot be used: {error.strerror}.") from None
    listener.set_inheritable(True)
    return listener
