"""Attacks on files, processes and privileges of a machine, by isolation mode: a program.

    /usr/bin/python3 -m tests.sandbox.platform_attacks [UID]

A malicious agent and a malicious build step make the same attempts, as root's platform or as that
of the user with the UID. Prints what each attempt got, by mode, as JSON. `network_attacks` has the
attempts on the network.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

from apps.deployments.sandbox import (
    Capability,
    Mode,
    Network,
    Policy,
    SandboxUnavailable,
    capability,
    launcher,
    prepare_dir,
    probe,
    spawn,
)

AGENT_UID, OTHER_UID = 1_000_007, 1_000_008
PYTHON = Path("/usr/bin/python3")
SECRET = "secret of the platform"

ATTACKER = r"""
import ctypes, fcntl, json, os, socket, sys
attempts = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
column = 0 if os.uname().machine == "x86_64" else 1

def call(name, x86, arm, *arguments):
    if libc.syscall((x86, arm)[column], *arguments, 0, 0, 0, 0, 0) == -1:
        raise OSError(ctypes.get_errno(), name)

def read(path):
    open(path, "rb").read(1)

def list_folder(path):
    os.listdir(path)

def write(path):
    open(path, "ab").write(b"x")

def create(path):
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))

def remove(path):
    os.unlink(path)

def rename(path, target):
    os.rename(path, target)

def hard_link(path, target):
    os.link(path, target)

def read_link(path, link):
    os.symlink(path, link)
    read(link)

def change_mode(path):
    os.chmod(path, 0o777)

def own(path):
    os.chown(path, 0, 0)

def connect(path):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)

def kill(pid):
    os.kill(pid, 0)

def root():
    os.setuid(0)

def groups():
    os.setgroups([0])

def other_user(uid):
    os.setuid(uid)

def device(path):
    os.mknod(path, 0o60600, os.makedev(8, 0))

def change_root():
    os.chroot("/")

def priority():
    os.setpriority(os.PRIO_PROCESS, 0, -5)

def terminal():
    fcntl.ioctl(os.open("/dev/ptmx", os.O_RDWR), 0x5412, b"x")

def open_socket(family, kind):
    socket.socket(family, kind).close()

def environments(mark):
    found = b""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            found += open(f"/proc/{pid}/environ", "rb").read()
        except OSError:
            pass
    if mark.encode() not in found:
        raise PermissionError("no environment of the platform")

results = {}
for name, *arguments in attempts:
    label = " ".join(map(str, [name, *arguments]))
    try:
        globals()[name](*arguments)
        results[label] = "reached"
    except OSError as error:
        results[label] = type(error).__name__
print(json.dumps(results))
"""

# Name, number on x86_64 and on aarch64, arguments.
SYSTEM_CALLS = (
    ("mount", 165, 40),
    ("umount2", 166, 39),
    ("unshare user", 272, 97, 0x10000000),
    ("unshare mounts", 272, 97, 0x00020000),
    ("setns", 308, 268),
    ("ptrace", 101, 117),
    ("process_vm_readv", 310, 270),
    ("keyctl", 250, 219),
    ("bpf", 321, 280),
    ("perf_event_open", 298, 241),
    ("userfaultfd", 323, 282),
    ("pivot_root", 155, 41),
    ("io_uring_setup", 425, 425),
    ("open_by_handle_at", 304, 265),
    ("init_module", 175, 105),
    ("kexec_load", 246, 104),
    ("swapon", 167, 224),
    ("reboot", 169, 142),
)


@dataclass(frozen=True)
class Machine:
    """Folders of the platform, of another organization and of the attacker."""

    folder: Path

    @property
    def own(self) -> Path:
        return self.folder / "own"

    def create(self) -> socket.socket:
        """Create the folders and the socket of a service, which is returned."""
        self.folder.chmod(0o711)
        for name in ("data", "data/postgres"):
            (self.folder / name).mkdir(mode=0o700)
        key = self.folder / "data" / "key"
        key.write_text(SECRET)
        key.chmod(0o600)
        other = prepare_dir(self.folder / "other", uid=OTHER_UID)
        (other / "agent.py").write_text("TOKEN = 'of another organization'")
        prepare_dir(other, uid=OTHER_UID)
        own = prepare_dir(self.own, uid=AGENT_UID)
        (own / "agent.py").write_text("graph = None")
        prepare_dir(own, uid=AGENT_UID)
        prepare_dir(self.folder / "scratch", uid=AGENT_UID)
        service = socket.socket(socket.AF_UNIX)
        service.bind(str(self.folder / "data" / "redis.sock"))
        service.listen()
        return service

    def policy(self, *, is_build: bool) -> Policy:
        scratch = self.folder / "scratch"
        policy = Policy(
            cwd=self.own,
            read_only=() if is_build else (self.own,),
            writable=(self.own, scratch) if is_build else (scratch,),
            uid=AGENT_UID,
            python=None,
        )
        # Network attempts are in `network_attacks`; without namespaces there is no other choice.
        return replace(policy, network=Network.SHARED)

    def list_attempts(self, *, is_build: bool) -> list[list[object]]:
        data, other, scratch = (self.folder / name for name in ("data", "other", "scratch"))
        pid = os.getpid()
        attempts: list[list[object]] = [
            ["read", data / "key"],
            ["list_folder", data / "postgres"],
            ["list_folder", other],
            ["read", other / "agent.py"],
            ["write", other / "agent.py"],
            ["create", other / "new"],
            ["remove", other / "agent.py"],
            ["rename", other / "agent.py", scratch / "taken"],
            ["hard_link", data / "key", scratch / "key"],
            ["read_link", data / "key", scratch / "link"],
            ["change_mode", data / "key"],
            ["own", data],
            ["connect", data / "redis.sock"],
            ["read", "/etc/shadow"],
            ["list_folder", "/root"],
            ["create", "/usr/evil"],
            ["create", "/etc/evil"],
            ["write", "/etc/passwd"],
            ["read", f"/proc/{pid}/environ"],
            ["read", f"/proc/{pid}/maps"],
            ["list_folder", f"/proc/{pid}/root"],
            ["list_folder", f"/proc/{pid}/fd"],
            ["write", f"/proc/{pid}/mem"],
            ["environments", "PLATFORM_SECRET"],
            ["write", "/proc/sys/kernel/core_pattern"],
            ["write", "/proc/sysrq-trigger"],
            ["read", "/dev/mem"],
            ["read", "/dev/kmsg"],
            ["kill", pid],
            ["root"],
            ["groups"],
            ["other_user", OTHER_UID],
            ["device", scratch / "disk"],
            ["change_root"],
            ["priority"],
            ["terminal"],
            ["open_socket", int(socket.AF_PACKET), int(socket.SOCK_RAW)],
            ["open_socket", int(socket.AF_VSOCK), int(socket.SOCK_STREAM)],
            ["open_socket", int(socket.AF_ALG), int(socket.SOCK_SEQPACKET)],
            *(["call", *call] for call in SYSTEM_CALLS),
        ]
        if not is_build:
            own = self.own / "agent.py"
            attempts += [["write", own], ["create", self.own / "new"], ["remove", own]]
        return [
            [str(part) if isinstance(part, Path) else part for part in attempt]
            for attempt in attempts
        ]


def attack(machine: Machine, isolation: Capability, *, is_build: bool) -> dict[str, str]:
    """Run the attempts in a sandbox and return what each got."""
    attempts = machine.list_attempts(is_build=is_build)
    command = [str(PYTHON.resolve()), "-I", "-S", "-c", ATTACKER, json.dumps(attempts)]
    policy = machine.policy(is_build=is_build)
    with launcher.start(policy, command, isolation=isolation, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.wait(120)
        results: dict[str, str] = json.loads(process.stdout.read())
    return results


def refuse_start(machine: Machine, *, is_build: bool) -> dict[str, str]:
    """Return the attempts, none of which is made on a machine that offers no isolation."""
    none = Capability(Mode.NONE, "This machine offers nothing.")
    with mock.patch.object(capability, "probe", return_value=none):
        try:
            spawn(machine.policy(is_build=is_build), ["/bin/true"])
        except SandboxUnavailable as error:
            attempts = machine.list_attempts(is_build=is_build)
            return {" ".join(map(str, attempt)): str(error) for attempt in attempts}
    return {"start": "reached"}


def main() -> None:
    user = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    if user:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    name = "ordinary user" if user else "root"
    modes = {f"{name}, bubblewrap": probe()}
    if not user:
        modes[f"{name}, Landlock"] = Capability(Mode.LANDLOCK, "")
    results: dict[str, dict[str, str]] = {}
    for is_build, role in ((False, "agent"), (True, "build")):
        for mode, isolation in modes.items():
            with tempfile.TemporaryDirectory(prefix="platform-attacks-") as folder:
                machine = Machine(Path(folder).resolve())
                with machine.create():
                    results[f"{mode}, {role}"] = attack(machine, isolation, is_build=is_build)
                    assert (machine.folder / "data" / "key").read_text() == SECRET
        with tempfile.TemporaryDirectory(prefix="platform-attacks-") as folder:
            machine = Machine(Path(folder).resolve())
            with machine.create():
                results[f"{name}, none, {role}"] = refuse_start(machine, is_build=is_build)
    print(json.dumps(results))  # noqa: T201


if __name__ == "__main__":
    main()
