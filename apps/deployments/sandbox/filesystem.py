"""The host files in every sandbox, those that a policy adds, and folders for sandboxed code."""

from __future__ import annotations

import enum
import functools
import os
import subprocess
import sys
from pathlib import Path

from .policy import Bind, InvalidPolicy, Policy

# Programs and libraries; on merged-usr systems all but the first are links into it.
SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")

# Files of name resolution, TLS, time zones and the dynamic linker. passwd and group are generated.
SYSTEM_FILES = tuple(
    f"/etc/{name}"
    for name in (
        *("alternatives", "ca-certificates", "ca-certificates.conf", "crypto-policies"),
        *("gai.conf", "host.conf", "hosts", "ld.so.cache", "ld.so.conf", "ld.so.conf.d"),
        *("localtime", "mime.types", "nsswitch.conf", "os-release", "pki", "protocols"),
        *("resolv.conf", "services", "ssl", "timezone"),
    )
)

DEVICES = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom"))


class Access(enum.Enum):
    READ_ONLY = "--ro-bind"
    WRITABLE = "--bind"
    HIDDEN = "--tmpfs"


def list_binds(policy: Policy) -> list[tuple[Bind, Access]]:
    """Return the binds of a policy, including hidden folders; parents come before children."""
    binds = [(bind, Access.READ_ONLY) for bind in python_installation(policy.python)]
    binds += [(_checked_bind(item), Access.READ_ONLY) for item in policy.read_only]
    binds += [(_checked_bind(item), Access.WRITABLE) for item in policy.writable]
    visible = [Path(folder).resolve() for folder in SYSTEM_FOLDERS]
    visible += [bind.target for bind, _ in binds]
    covered = {path.resolve() for path in policy.hidden if path.is_dir()}
    binds += [
        (Bind(path, path), Access.HIDDEN)
        for path in covered
        if any(folder in path.parents for folder in visible)
    ]
    # A bind of a hidden folder itself is intended: it comes after the tmpfs that hides it.
    return sorted(binds, key=lambda pair: (len(pair[0].target.parts), pair[1].value != "--tmpfs"))


def writable_paths(policy: Policy) -> list[Path]:
    return [bind.source for bind, access in list_binds(policy) if access is Access.WRITABLE]


@functools.cache
def python_installation(interpreter: Path | None) -> tuple[Bind, ...]:
    """Return binds of the interpreter's installation, under each path that leads to it."""
    if interpreter is None:
        return ()
    if interpreter == Path(sys.executable):
        prefix = Path(sys.base_prefix)
    else:
        command = [str(interpreter), "-I", "-S", "-c", "import sys; print(sys.base_prefix)"]
        result = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 -- an interpreter of the operator, with constant arguments
        prefix = Path(result.stdout.strip())
    real = prefix.resolve()
    if real == Path("/"):
        raise InvalidPolicy("a Python installed to / would expose the whole file system")
    names = {prefix.absolute(), real, interpreter.resolve().parents[1]}
    outside = sorted(name for name in names if not name.is_relative_to("/usr"))
    return tuple(Bind(real, name) for name in outside)


def _checked_bind(item: Path | Bind) -> Bind:
    bind = item if isinstance(item, Bind) else Bind(item, item)
    if not (bind.source.is_absolute() and bind.target.is_absolute()):
        raise InvalidPolicy(f"{bind.source}: policy paths must be absolute")
    try:
        real = bind.source.resolve(strict=True)
    except OSError as error:
        raise InvalidPolicy(f"{bind.source} cannot be bound into a sandbox: {error}") from error
    if real != bind.source:
        raise InvalidPolicy(f"{bind.source} contains a symbolic link; use {real}")
    if bind.source == Path("/") or bind.target == Path("/"):
        raise InvalidPolicy("a policy must not bind the whole file system")
    return bind


def prepare_dir(path: Path, *, uid: int | None, mode: int = 0o700) -> Path:
    """Create a folder and its parents, owned by `uid`, and return it. Safe to repeat.

    Existing content changes its owner too; links are not followed.
    """
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(mode)
    if uid is not None and os.geteuid() == 0:
        for _, folders, files, fd in os.fwalk(path, follow_symlinks=False):
            for name in (*folders, *files):
                os.chown(name, uid, uid, dir_fd=fd, follow_symlinks=False)
        os.chown(path, uid, uid, follow_symlinks=False)
    return path
