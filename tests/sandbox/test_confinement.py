"""Attempts of malicious code to leave its sandbox, and their results."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from apps.deployments.sandbox import Bind, InvalidPolicy, Network, spawn, usage
from apps.deployments.sandbox.stub import syscalls
from tests.child_output import read_line

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user keeps its own uid")


def test_the_data_folder_and_other_revisions_are_hidden(folders):
    result = folders.run(
        """
        import sys
        for path in sys.argv[1:]:
            try:
                print(open(path).read())
            except OSError as error:
                print(type(error).__name__)
        """,
        folders.data / "secret",
        folders.other / "agent.py",
        folders.own / "agent.py",
    )

    assert result.output.splitlines() == [
        "FileNotFoundError",
        "FileNotFoundError",
        "print('hello')",
    ]


def test_link_left_behind_is_not_followed(folders):
    (folders.scratch / "way-out").symlink_to(folders.data)
    result = folders.run(
        "import sys; print(open(sys.argv[1] + '/way-out/secret').read())", folders.scratch
    )

    assert result.code == 1
    assert "FileNotFoundError" in result.output


def test_policy_path_with_a_link_is_rejected(folders):
    link = folders.scratch / "venv"
    link.symlink_to(folders.data)

    with pytest.raises(InvalidPolicy, match="contains a symbolic link"):
        spawn(folders.policy(read_only=(link,)), ["/bin/true"])
    with pytest.raises(InvalidPolicy, match="contains a symbolic link"):
        spawn(folders.policy(read_only=(Bind(link, Path("/opt/venv")),)), ["/bin/true"])
    with pytest.raises(InvalidPolicy, match="whole file system"):
        spawn(folders.policy(read_only=(Path("/"),)), ["/bin/true"])


def test_home_folders_run_and_the_hosts_tmp_are_empty_or_absent(folders):
    result = folders.run(
        """
        import os
        print(sorted(os.listdir("/")))
        print(os.listdir("/dev/shm"), os.path.exists("/run"), os.path.exists("/etc/shadow"))
        print(os.listdir("/tmp"))
        """,
        cwd=Path("/"),
        read_only=(),
        writable=(),
    )

    names = result.output.splitlines()
    assert not {"run", "home", "var", "srv", "mnt", "sys"} & set(eval(names[0]))
    assert names[1] == "[] False False"
    assert names[2] == "[]"


def test_a_hidden_folder_inside_a_visible_folder_shows_only_its_allowed_parts(folders):
    platform = folders.own / "platform"
    for name in ("graph_host", "secrets"):
        (platform / name).mkdir(parents=True)
        (platform / name / "file").write_text(name)
    result = folders.run(
        """
        import os, sys
        print(os.listdir(sys.argv[1]), open(sys.argv[1] + "/graph_host/file").read())
        open(sys.argv[1] + "/new", "w")
        """,
        platform,
        hidden=(platform,),
        read_only=(folders.own, platform / "graph_host"),
    )

    assert result.output.splitlines()[-1] == "['graph_host'] graph_host"
    assert "Read-only file system" in result.output


def test_only_the_processes_of_the_sandbox_are_visible(folders):
    result = folders.run(
        """
        import os
        for pid in filter(str.isdigit, os.listdir("/proc")):
            print(pid, open(f"/proc/{pid}/cmdline").read().split(chr(0))[0].split("/")[-1])
        """
    )

    lines = result.output.splitlines()
    assert lines[0] == "1 bwrap"
    assert len(lines) == 2
    assert lines[1].startswith("2 python")


def test_the_environment_has_only_the_variables_of_the_policy(folders, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "postgres://secret")
    result = folders.run(
        """
        import glob, os
        print(dict(sorted(os.environ.items())))
        seen = b"".join(open(path, "rb").read() for path in glob.glob("/proc/[0-9]*/environ"))
        print(b"secret" in seen)
        """,
        env={"GREETING": "hello\nworld"},
    )

    expected = {
        "GREETING": "hello\nworld",
        "HOME": "/tmp",
        "LANG": "C.UTF-8",
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "PWD": str(folders.own),
        "TMPDIR": "/tmp",
    }
    assert result.output.splitlines() == [str(expected), "False"]


def test_the_environment_does_not_show_in_the_machines_process_list(folders):
    policy = folders.policy(env={"KEY": "s3cr3t"})
    script = "print('ready', flush=True); input()"
    with folders.start(script, policy=policy, stdin=-1, stdout=-1) as process:
        assert read_line(process.stdout) == b"ready\n"
        lines = subprocess.check_output(["ps", "-ww", "-o", "args", "-p", list_pids(process)])

    assert lines.count(b"bwrap") == 2
    assert b"s3cr3t" not in lines


def list_pids(process) -> str:
    return ",".join(map(str, usage.process_tree(process.pid)))


def test_sockets_of_the_platform_are_unreachable(folders):
    # Paths of sockets have at most 107 bytes, the temporary folder may have more.
    folder = os.open(folders.services, os.O_PATH | os.O_DIRECTORY)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"/proc/self/fd/{folder}/postgres")
        os.close(folder)
        server.listen()
        result = folders.run(
            """
            import os, socket, sys
            folder = os.open(sys.argv[1], os.O_PATH | os.O_DIRECTORY)
            socket.socket(socket.AF_UNIX).connect(f"/proc/self/fd/{folder}/postgres")
            """,
            folders.services,
        )

    error = result.output.splitlines()[-1]
    assert error.startswith("FileNotFoundError: [Errno 2] No such file or directory"), error


@pytest.mark.skipif(syscalls.get_landlock_version() < 6, reason="needs Landlock 6 (Linux 6.12)")
def test_abstract_sockets_of_other_processes_are_unreachable(folders):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(b"\0slipway-test-%d" % os.getpid())
        server.listen()
        result = folders.run(
            f"""
            import socket
            socket.socket(socket.AF_UNIX).connect(b"\\0slipway-test-{os.getpid()}")
            """
        )

    assert result.output.endswith("PermissionError: [Errno 1] Operation not permitted")


def test_agent_source_and_system_files_are_read_only(folders):
    result = folders.run(
        """
        import errno, sys
        for path in (sys.argv[1], "/usr/bin/x", "/etc/passwd", "/x", "/dev/x", sys.executable):
            try:
                open(path, "r+" if path == sys.executable else "w")
            except OSError as error:
                print(errno.errorcode[error.errno])
        """,
        folders.own / "agent.py",
    )

    assert result.output.split()[:2] == ["EROFS", "EROFS"]
    assert result.output.split()[3:5] == ["EROFS", "EROFS"]
    assert len(result.output.split()) == 6
    assert (folders.own / "agent.py").read_text() == "print('hello')"


def test_signals_do_not_reach_outside_processes(folders):
    result = folders.run(
        """
        import os, sys
        try:
            os.kill(int(sys.argv[1]), 9)
        except OSError as error:
            print(type(error).__name__)
        print(os.getppid())
        os.kill(1, 9)
        if os.fork() == 0:
            os.kill(-1, 9)
        print("only processes of the sandbox end")
        """,
        os.getpid(),
    )

    assert result.output.splitlines()[:2] == ["ProcessLookupError", "1"]


SYSTEM_CALLS = {  # x86_64 and aarch64, with harmless arguments; -1 for "not on this machine"
    "mount": (165, 40, "EPERM"),
    "umount2": (166, 39, "EPERM"),
    "unshare": (272, 97, "EPERM"),
    "setns": (308, 268, "EPERM"),
    "ptrace": (101, 117, "EPERM"),
    "process_vm_readv": (310, 270, "EPERM"),
    "keyctl": (250, 219, "EPERM"),
    "bpf": (321, 280, "EPERM"),
    "perf_event_open": (298, 241, "EPERM"),
    "userfaultfd": (323, 282, "EPERM"),
    "pivot_root": (155, 41, "EPERM"),
    "io_uring_setup": (425, 425, "ENOSYS"),
    "memfd_create": (319, 279, "ENOSYS"),
    "shmget": (29, 194, "ENOSYS"),
    "clone3": (435, 435, "ENOSYS"),
}


def test_dangerous_system_calls_are_denied(folders):
    column = 0 if os.uname().machine == "x86_64" else 1
    result = folders.run(
        f"""
        import ctypes, errno
        libc = ctypes.CDLL(None, use_errno=True)
        for number in {[row[column] for row in SYSTEM_CALLS.values()]}:
            assert libc.syscall(number, 0, 0, 0, 0, 0) == -1
            print(errno.errorcode[ctypes.get_errno()])
        """
    )

    answers = dict(zip(SYSTEM_CALLS, result.output.split(), strict=True))
    assert answers == {name: row[2] for name, row in SYSTEM_CALLS.items()}


def test_privileges_cannot_be_gained(folders):
    result = folders.run(
        """
        import errno, os, re
        status = open("/proc/self/status").read()
        print(re.findall(r"(?:CapEff|CapBnd|NoNewPrivs|Seccomp):\\s+(\\S+)", status))
        attempts = {
            "setuid": lambda: os.setuid(0),
            "setgroups": lambda: os.setgroups([0]),
            "mknod": lambda: os.mknod("/tmp/disk", 0o60600, os.makedev(8, 0)),
            "chroot": lambda: os.chroot("/tmp"),
            "nice": lambda: os.setpriority(os.PRIO_PROCESS, 0, -5),
            "oom": lambda: os.write(os.open("/proc/self/oom_score_adj", os.O_WRONLY), b"-500"),
        }
        for name, attempt in attempts.items():
            try:
                attempt()
                print(name, "was allowed")
            except OSError as error:
                print(errno.errorcode[error.errno])
        """
    )

    first, *answers = result.output.splitlines()
    assert first == "['0000000000000000', '0000000000000000', '1', '2']"
    assert answers == ["EINVAL", "EPERM", "EPERM", "EPERM", "EACCES", "EROFS"]


def test_terminal_injection_is_denied(folders):
    result = folders.run(
        """
        import errno, fcntl, os
        try:
            fcntl.ioctl(os.open("/dev/ptmx", os.O_RDWR), 0x5412, b"x")
        except OSError as error:
            print(errno.errorcode[error.errno])
        try:
            open("/dev/tty")
        except OSError as error:
            print(errno.errorcode[error.errno])
        """
    )

    assert result.output.split() == ["EPERM", "ENXIO"]


def test_unusual_socket_families_are_denied(folders):
    result = folders.run(
        """
        import errno, socket
        for family in (socket.AF_VSOCK, socket.AF_PACKET, socket.AF_ALG):
            try:
                socket.socket(family, socket.SOCK_STREAM)
            except OSError as error:
                print(errno.errorcode[error.errno])
        socket.socket(socket.AF_INET).close()
        """
    )

    assert result.code == 0
    assert result.output.split() == ["EAFNOSUPPORT"] * 3


def test_loopback_is_unreachable_without_network(folders):
    with socket.create_server(("127.0.0.1", 0)) as server:
        script = "import socket; socket.create_connection(('127.0.0.1', %d))"
        port = server.getsockname()[1]
        with_network = folders.run(script % port)
        alone = folders.run(script % port, network=Network.NONE)

    assert with_network.code == 0
    assert alone.output.endswith("ConnectionRefusedError: [Errno 111] Connection refused")


@as_root
def test_root_platform_requires_an_unprivileged_uid(folders):
    with pytest.raises(InvalidPolicy, match="unprivileged uid"):
        spawn(folders.policy(uid=None), ["/bin/true"])
    with pytest.raises(InvalidPolicy, match="unprivileged uid"):
        spawn(folders.policy(uid=0), ["/bin/true"])
    with pytest.raises(InvalidPolicy, match="unprivileged gid"):
        spawn(folders.policy(gid=0), ["/bin/true"])


@as_root
def test_files_created_in_the_sandbox_belong_to_the_organizations_uid(folders):
    result = folders.run(
        "import os, sys; open(sys.argv[1] + '/made', 'w'); print(os.getuid())", folders.scratch
    )

    assert result.output == "1000"
    assert (folders.scratch / "made").stat().st_uid == folders.uid
