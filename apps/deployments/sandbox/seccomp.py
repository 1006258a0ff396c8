"""The seccomp filter: a classic BPF program for x86_64 and aarch64.

It denies system calls that agent code does not need and that kernel exploits use: namespaces,
mounts, tracing, keyrings, BPF, io_uring, unusual sockets. It also denies memory that is not
part of a process's size (`memfd_create`, System V shared memory): the watchdog cannot measure it.
"""

from __future__ import annotations

import errno
import functools
import platform
import struct

# Kernel system-call numbers: name -> (x86_64, aarch64). None if the architecture has no such call.
_FORBIDDEN: dict[str, tuple[int | None, int | None]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}
# Fail with ENOSYS like on an older kernel, so that libraries use their fallback.
_ABSENT: dict[str, tuple[int | None, int | None]] = {
    "clone3": (435, 435),  # its flags are behind a pointer, which a filter cannot read
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "msgget": (68, 186),
    "shmget": (29, 194),
}
_CLONE = (56, 220)
_IOCTL = (16, 29)
_SOCKET = (41, 198)

_NAMESPACE_FLAGS = 0x7E020000  # every CLONE_NEW*
_TERMINAL_INJECTION = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
_SOCKET_FAMILIES = (1, 2, 10, 16)  # unix, IPv4, IPv6, netlink (getaddrinfo asks it for addresses)

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000

_KILL = 0x80000000
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000

_LOAD, _EQUAL, _GREATER_OR_EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH, _ARGUMENT_0, _ARGUMENT_1 = 0, 4, 16, 24  # offsets in struct seccomp_data


@functools.cache
def program(machine: str | None = None) -> bytes | None:
    """Return the filter for the architecture, or None for an unknown one."""
    machine = machine or platform.machine()
    arch = _AUDIT_ARCH.get(machine)
    if arch is None:
        return None
    column = 0 if machine == "x86_64" else 1

    code = [
        (_LOAD, 0, 0, _ARCH),
        (_EQUAL, 1, 0, arch),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if machine == "x86_64":
        code += [(_GREATER_OR_EQUAL, 0, 1, _X32_BIT), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    for table, error in ((_FORBIDDEN, errno.EPERM), (_ABSENT, errno.ENOSYS)):
        for numbers in table.values():
            if (number := numbers[column]) is not None:
                code += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO | error)]
    code += _when(
        _CLONE[column],
        [
            (_LOAD, 0, 0, _ARGUMENT_0),
            (_ANY_BIT, 0, 1, _NAMESPACE_FLAGS),
            (_RETURN, 0, 0, _ERRNO | errno.EPERM),
        ],
    )
    code += _when(
        _IOCTL[column],
        [
            (_LOAD, 0, 0, _ARGUMENT_1),
            (_EQUAL, 1, 0, _TERMINAL_INJECTION[0]),
            (_EQUAL, 0, 1, _TERMINAL_INJECTION[1]),
            (_RETURN, 0, 0, _ERRNO | errno.EPERM),
        ],
    )
    code += _when(
        _SOCKET[column],
        [
            (_LOAD, 0, 0, _ARGUMENT_0),
            *((_EQUAL, len(_SOCKET_FAMILIES) - i, 0, f) for i, f in enumerate(_SOCKET_FAMILIES)),
            (_RETURN, 0, 0, _ERRNO | errno.EAFNOSUPPORT),
        ],
    )
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def _when(number: int, body: list[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """Return instructions that run `body` for one system call and allow the call after it."""
    return [(_EQUAL, 0, len(body) + 1, number), *body, (_RETURN, 0, 0, _ALLOW)]
