"""Start and end of a sandbox, and its passed file descriptors."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from apps.deployments.sandbox import InvalidPolicy, spawn, usage
from tests.child_output import read_line
from tests.installation import PATIENCE_SECONDS

from .conftest import PYTHON, finish

# Starts three daemons, each in its own session and without its parent.
DAEMONS = """
import os, time
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
    os.wait()
print("ready", flush=True)
"""
SLEEPING_PROCESS_TREE = DAEMONS + "time.sleep(600)"
EXITING_PROCESS_TREE = DAEMONS + "input()"


def wait_until_gone(pids: list[int], seconds: float = PATIENCE_SECONDS) -> list[int]:
    """Wait for the processes to end; return those that are alive after `seconds`."""
    end = time.monotonic() + seconds
    while (alive_pids := [pid for pid in pids if is_alive(pid)]) and time.monotonic() < end:
        time.sleep(0.01)
    return alive_pids


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_the_exit_code_is_that_of_the_command(folders):
    assert folders.run("raise SystemExit(3)").code == 3
    assert folders.run("import os; os.kill(os.getpid(), 15)").code == 128 + 15


def test_a_missing_command_is_reported(folders):
    process = spawn(
        folders.policy(), ["/no/such/program"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    with process:
        assert process.wait(PATIENCE_SECONDS) == 1
        assert process.stderr.read() == (
            b"bwrap: execvp /no/such/program: No such file or directory\n"
        )


def test_kill_ends_the_process_tree_and_can_be_repeated(folders):
    with folders.start(SLEEPING_PROCESS_TREE, stdout=subprocess.PIPE) as process:
        assert read_line(process.stdout) == b"ready\n"
        pids = usage.process_tree(process.pid)
        assert process.poll() is None

        process.kill()
        process.kill()

        assert process.wait(PATIENCE_SECONDS) == 128 + 9
        assert len(pids) == 6
        assert wait_until_gone(pids) == []
        process.kill()
    assert process.stopped_because is None


def test_kill_at_the_start_leaves_no_process(folders):
    started = []
    for _ in range(10):
        with folders.start("input()", stdin=subprocess.PIPE) as process:
            while not (children := usage.children(process.pid)):
                assert process.poll() is None
            started += children
            process.kill()

    assert wait_until_gone(started) == []


def test_the_process_tree_ends_with_its_command(folders):
    with folders.start(
        EXITING_PROCESS_TREE, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert read_line(process.stdout) == b"ready\n"
        pids = usage.process_tree(process.pid)
        process.stdin.write(b"\n")
        process.stdin.flush()

        assert process.wait(PATIENCE_SECONDS) == 0
    assert len(pids) == 6
    assert wait_until_gone(pids) == []


def test_sigkill_of_the_platforms_process_ends_the_tree(folders):
    script = f"""
import subprocess, sys, threading
from pathlib import Path
from apps.deployments.sandbox import Policy, spawn, usage
policy = Policy(cwd=Path("/"), uid={folders.uid})
processes = []
def start():
    command = [{PYTHON!r}, "-c", {SLEEPING_PROCESS_TREE!r}]
    processes.append(spawn(policy, command, stdout=subprocess.PIPE))
thread = threading.Thread(target=start)
thread.start()
thread.join()
processes[0].stdout.readline()
print(*usage.process_tree(processes[0].pid), flush=True)
input()
"""
    root = str(Path(__file__).parents[2])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    parent = subprocess.Popen([sys.executable, "-c", script], stdin=-1, stdout=-1, env=env)
    with parent:
        pids = [int(pid) for pid in read_line(parent.stdout).split()]
        # The thread that started the sandbox has ended; only the end of the process matters.
        assert wait_until_gone(pids, 0.2) == pids

        parent.kill()

        assert len(pids) == 6
        assert wait_until_gone(pids) == []
    assert parent.returncode == -signal.SIGKILL


def test_concurrent_threads_start_sandboxes(folders):
    def square(number: int) -> str:
        return folders.run("import sys; print(int(sys.argv[1]) ** 2)", number).output

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(square, range(16))) == [str(number**2) for number in range(16)]


def test_a_forked_worker_starts_its_own_sandbox(folders):
    folders.run("pass")
    pid = os.fork()
    if pid == 0:
        os._exit(folders.run("raise SystemExit(5)").code)

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5


def test_only_passed_descriptors_are_open_inside(folders):
    parent_end, child_end = socket.socketpair()
    with parent_end, (folders.data / "secret").open() as secret:
        os.set_inheritable(secret.fileno(), True)
        process = folders.start(
            """
            import os, socket, sys
            channel = socket.socket(fileno=int(sys.argv[1]))
            listing = map(int, os.listdir("/proc/self/fd"))
            still_open = [fd for fd in listing if os.path.exists(f"/proc/self/fd/{fd}")]
            channel.sendall(str(sorted(still_open)).encode())
            channel.sendall(channel.recv(100).upper())
            """,
            str(child_end.fileno()),
            pass_fds=[child_end.fileno()],
            stdout=subprocess.PIPE,
        )
        number = child_end.fileno()
        child_end.close()
        open_descriptors = parent_end.recv(100).decode()
        parent_end.sendall(b"hello")

        assert parent_end.recv(100) == b"HELLO"
        assert open_descriptors == str([0, 1, 2, number])
        assert finish(process).code == 0


def test_a_command_or_environment_with_a_nul_is_refused(folders):
    with pytest.raises(InvalidPolicy):
        spawn(folders.policy(), ["/bin/true", "a\0b"])
    with pytest.raises(InvalidPolicy):
        spawn(folders.policy(env={"A": "x\0--bind\0/\0/"}), ["/bin/true"])
    with pytest.raises(InvalidPolicy):
        spawn(folders.policy(), [])


def test_a_finished_sandbox_leaves_no_thread_or_descriptor(folders):
    def list_resources() -> set[object]:
        descriptors = {
            f"{link.name} {target}"
            for link in Path("/proc/self/fd").iterdir()
            if (target := read_link(link)) is not None
        }
        return {*descriptors, *threading.enumerate()}

    folders.run("pass")
    before = list_resources()
    for _ in range(5):
        folders.run("pass")

    # Threads of earlier tests may end meanwhile.
    assert list_resources() - before == set()


def read_link(path: Path) -> str | None:
    """Return the target; None for the descriptor that listed the folder, which is closed."""
    try:
        return str(path.readlink())
    except FileNotFoundError:
        return None
