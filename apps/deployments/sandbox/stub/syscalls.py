"""System calls without a function in Python's standard library."""

# ruff: noqa: PTH112 - pathlib would slow every start

from __future__ import annotations

import ctypes
import os
import struct

_libc = ctypes.CDLL(None, use_errno=True)

_PR_SET_PDEATHSIG = 1
_PR_SET_SECCOMP = 22
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_MODE_FILTER = 2

_CLONE_NEWNS = 0x00020000
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_NS_GET_USERNS = 0xB701
_MS_NOSUID_NODEV = 2 | 4
_MS_BIND_RECURSIVE = 4096 | 16384
_MS_PRIVATE_RECURSIVE = 262144 | 16384

# The same numbers on every architecture.
_LANDLOCK_CREATE_RULESET, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT_SELF = 444, 445, 446

_SCOPES = 1 | 2  # abstract unix sockets, signals
_READ = 1 << 0 | 1 << 2 | 1 << 3  # execute, read file, read folder
# Rights added by each version of Landlock; the highest bit of the first is MAKE_SYM.
_ALL_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
# The rights that a rule on a file, not a folder, may grant: execute, read, write, truncate, ioctl.
_FILE_RIGHTS = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15


def _raise_on_error(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _prctl(option: int, argument: int) -> None:
    _raise_on_error(_libc.prctl(option, ctypes.c_ulong(argument), *[ctypes.c_ulong(0)] * 3))


def set_parent_death_signal(signal: int) -> None:
    _prctl(_PR_SET_PDEATHSIG, signal)


def set_child_subreaper() -> None:
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def set_no_new_privileges() -> None:
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def filter_system_calls(program: bytes) -> None:
    code = ctypes.create_string_buffer(program, len(program))
    # struct sock_fprog: a count, padding, a pointer
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    pointer = ctypes.create_string_buffer(header, len(header))
    zeros = [ctypes.c_ulong(0)] * 2
    mode = ctypes.c_ulong(_SECCOMP_MODE_FILTER)
    _raise_on_error(_libc.prctl(_PR_SET_SECCOMP, mode, ctypes.byref(pointer), *zeros))


def unshare_mounts() -> None:
    """Enter a private copy of the mount namespace."""
    _raise_on_error(_libc.unshare(_CLONE_NEWNS))
    _raise_on_error(_libc.mount(b"none", b"/", None, ctypes.c_ulong(_MS_PRIVATE_RECURSIVE), None))


def enter_network(pid: int) -> None:
    """Enter the network namespace of a process, and the user namespace that owns it.

    The process itself may have entered a further user namespace, which has no rights over it.
    """
    network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    owner = _raise_on_error(_libc.ioctl(network, ctypes.c_ulong(_NS_GET_USERNS)))
    for fd, kind in ((owner, _CLONE_NEWUSER), (network, _CLONE_NEWNET)):
        _raise_on_error(_libc.setns(fd, kind))
        os.close(fd)


def mount_tmpfs(target: str) -> None:
    options = ctypes.c_ulong(_MS_NOSUID_NODEV)
    _raise_on_error(_libc.mount(b"tmpfs", target.encode(), b"tmpfs", options, b"mode=755,size=1m"))


def bind_mount(source_fd: int, target: str) -> None:
    source = f"/proc/self/fd/{source_fd}".encode()
    options = ctypes.c_ulong(_MS_BIND_RECURSIVE)
    _raise_on_error(_libc.mount(source, target.encode(), None, options, None))


def get_landlock_version() -> int:
    """Return the version of Landlock in this kernel, 0 for none."""
    return max(0, int(_libc.syscall(_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), 1)))


def restrict_scope() -> None:
    """Deny this process tree the abstract sockets and signals of other processes."""
    if get_landlock_version() >= 6:
        _restrict(_ruleset(0, _SCOPES))


def restrict_files(read_only: list[str], writable: list[str]) -> None:
    """Restrict this process and its children to the given files and folders."""
    version = get_landlock_version()
    rights = _ALL_RIGHTS[max(added_in for added_in in _ALL_RIGHTS if added_in <= version)]
    ruleset = _ruleset(rights, _SCOPES if version >= 6 else 0)
    for paths, granted in ((read_only, _READ), (writable, rights)):
        for path in paths:
            _allow_beneath(ruleset, path, granted)
    _restrict(ruleset)


def _ruleset(file_rights: int, scopes: int) -> int:
    attributes = struct.pack("=QQQ", file_rights, 0, scopes)
    if not scopes:
        attributes = attributes[:8]  # the size of the structure before version 4
    size = ctypes.c_size_t(len(attributes))
    return _raise_on_error(_libc.syscall(_LANDLOCK_CREATE_RULESET, attributes, size, 0))


def _allow_beneath(ruleset: int, path: str, rights: int) -> None:
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    if not os.path.isdir(path):
        rights &= _FILE_RIGHTS
    rule = struct.pack("=Qi", rights, fd)
    _raise_on_error(_libc.syscall(_LANDLOCK_ADD_RULE, ruleset, 1, rule, 0))
    os.close(fd)


def _restrict(ruleset: int) -> None:
    _raise_on_error(_libc.syscall(_LANDLOCK_RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)
