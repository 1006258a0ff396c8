"""Execute a program that cannot outlive the supervisor.

Run as a script (`python -I -S parent_death.py OPTIONS -- PROGRAM ...`), so it imports only the
standard library. It changes to the service user when asked, sends the output to the log, asks
the kernel for a signal on the supervisor's death, and then executes the program.
"""

import argparse
import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
PR_SET_SECUREBITS = 28
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_RAISE = 2
CAP_DAC_OVERRIDE = 1
CAP_DAC_READ_SEARCH = 2
CAPABILITY_VERSION_3 = 0x20080522
SECBIT_NO_SETUID_FIXUP = 1 << 2

libc = ctypes.CDLL(None, use_errno=True)


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Data(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


def tie_to_parent(parent: int, deadly: int) -> None:
    """Request the signal `deadly` on the parent's death; exit if it has already died."""
    libc.prctl(PR_SET_PDEATHSIG, deadly, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("the supervisor is gone")


def change_user(uid: int, *, closed_folder: str = "") -> None:
    """Change from root to `uid`; `closed_folder` names a folder closed to that user.

    A checkout below a root-only home contains the program itself. The process then keeps one of two
    capabilities, the first that it has. Without SECBIT_NO_SETUID_FIXUP `access(2)`, by which
    `initdb` looks for `postgres`, ignores capabilities (capabilities(7)).
    """
    if closed_folder:
        securebits = libc.prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    if closed_folder and (
        securebits != 0 or not (_keep(CAP_DAC_READ_SEARCH) or _keep(CAP_DAC_OVERRIDE))
    ):
        sys.exit(f"user {uid} cannot enter {closed_folder}; install Slipway in another folder")


def _keep(capability: int) -> bool:
    bit = 1 << capability
    header = _Header(CAPABILITY_VERSION_3, 0)
    data = (_Data * 2)(_Data(bit, bit, bit), _Data(0, 0, 0))
    set_result: int = libc.capset(ctypes.byref(header), data)
    raise_result: int = libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability, 0, 0)
    return set_result == 0 and raise_result == 0


def send_output_to(path: str) -> None:
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)


def main() -> None:
    parser = argparse.ArgumentParser(prog="parent_death")
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--deadly", type=int, default=signal.SIGKILL)
    parser.add_argument("--uid", type=int)
    parser.add_argument("--closed-folder", default="")
    parser.add_argument("--log")
    parser.add_argument("program", nargs="+")
    options = parser.parse_args()

    if options.log:
        send_output_to(options.log)
    if options.uid is not None:
        change_user(options.uid, closed_folder=options.closed_folder)
    # A change of user clears the death signal, so request it afterwards.
    tie_to_parent(options.parent, options.deadly)
    os.umask(0o077)
    os.execv(options.program[0], options.program)  # noqa: S606 -- a program of the supervisor


if __name__ == "__main__":
    main()
