"""Which files of the machine are part of every sandbox, and which a policy adds."""

from __future__ import annotations

import enum
import functools
import subprocess
import sys
from pathlib import Path

from .errors import PolicyRefused
from .policy import Bind, Policy

# Programs and libraries; on merged systems all but the first are links into it.
SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")

# What name lookup, TLS, time zones and the dynamic linker read. Users and groups are made up.
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


def shown(policy: Policy) -> list[tuple[Bind, Access]]:
    """What a policy adds to the system or covers of it, parents before what lies in them."""
    found = [(bind, Access.READ_ONLY) for bind in python_installation(policy.python)]
    found += [(_checked(item), Access.READ_ONLY) for item in policy.read_only]
    found += [(_checked(item), Access.WRITABLE) for item in policy.writable]
    places = [Path(folder).resolve() for folder in SYSTEM_FOLDERS]
    places += [bind.target for bind, _ in found]
    covered = {path.resolve() for path in policy.hidden if path.is_dir()}
    found += [
        (Bind(path, path), Access.HIDDEN)
        for path in covered
        if any(place in path.parents for place in places)
    ]
    # A bind of the very folder that is hidden was meant: it comes after its cover.
    return sorted(found, key=lambda pair: (len(pair[0].target.parts), pair[1].value != "--tmpfs"))


def writable(policy: Policy) -> list[Path]:
    return [bind.source for bind, access in shown(policy) if access is Access.WRITABLE]


@functools.cache
def python_installation(interpreter: Path | None) -> tuple[Bind, ...]:
    """The folder that the interpreter was installed to, under each name that leads to it."""
    if interpreter is None:
        return ()
    if interpreter == Path(sys.executable):
        prefix = Path(sys.base_prefix)
    else:
        question = [str(interpreter), "-I", "-S", "-c", "import sys; print(sys.base_prefix)"]
        answer = subprocess.run(question, check=True, capture_output=True, text=True)
        prefix = Path(answer.stdout.strip())
    real = prefix.resolve()
    if real == Path("/"):
        raise PolicyRefused("a Python installed to / would show the whole file system")
    names = {prefix.absolute(), real, interpreter.resolve().parents[1]}
    outside = sorted(name for name in names if not name.is_relative_to("/usr"))
    return tuple(Bind(real, name) for name in outside)


def _checked(item: Path | Bind) -> Bind:
    bind = item if isinstance(item, Bind) else Bind(item, item)
    if not (bind.source.is_absolute() and bind.target.is_absolute()):
        raise PolicyRefused(f"{bind.source}: paths of a policy are absolute")
    try:
        real = bind.source.resolve(strict=True)
    except OSError as error:
        raise PolicyRefused(f"{bind.source} cannot be shown in a sandbox: {error}") from error
    if real != bind.source:
        raise PolicyRefused(f"{bind.source} goes through a symbolic link; name {real} itself")
    if bind.source == Path("/") or bind.target == Path("/"):
        raise PolicyRefused("a sandbox does not show the whole file system")
    return bind
