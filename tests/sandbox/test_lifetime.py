"""Beginning and end of a sandbox, and its only door."""

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

from .conftest import PYTHON, finish

# Three daemons that left their session and their parent.
FAMILY = """
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
STAYS = FAMILY + "time.sleep(600)"
LEAVES = FAMILY + "input()"


def wait_until_gone(pids: list[int], seconds: float) -> list[int]:
    """Those of the processes that are still alive after this time."""
    end = time.monotonic() + seconds
    while (left := [pid for pid in pids if alive(pid)]) and time.monotonic() < end:
        time.sleep(0.01)
    return left


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_exit_code_is_that_of_the_command(world):
    assert world.run("raise SystemExit(3)").code == 3
    assert world.run("import os; os.kill(os.getpid(), 15)").code == 128 + 15


def test_missing_command_is_reported(world):
    process = spawn(
        world.policy(), ["/no/such/program"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    with process:
        assert process.wait(30) == 1
        assert process.stderr.read() == (
            b"bwrap: execvp /no/such/program: No such file or directory\n"
        )


def test_kill_ends_the_whole_tree_and_may_be_repeated(world):
    with world.start(STAYS, stdout=subprocess.PIPE) as process:
        assert read_line(process.stdout) == b"ready\n"
        pids = usage.process_tree(process.pid)
        assert process.poll() is None

        process.kill()
        process.kill()

        assert process.wait(30) == 128 + 9
        assert len(pids) == 6
        assert wait_until_gone(pids, 10) == []
        process.kill()
    assert process.stopped_because is None


def test_the_tree_ends_with_its_command(world):
    with world.start(LEAVES, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert read_line(process.stdout) == b"ready\n"
        pids = usage.process_tree(process.pid)
        process.stdin.write(b"\n")
        process.stdin.flush()

        assert process.wait(30) == 0
    assert len(pids) == 6
    assert wait_until_gone(pids, 10) == []


def test_sigkill_of_the_platforms_process_ends_the_tree_within_a_second(world):
    script = f"""
import subprocess, sys, threading
from pathlib import Path
from apps.deployments.sandbox import Policy, spawn, usage
from tests.child_output import read_line
policy = Policy(cwd=Path("/"), uid={world.uid})
found = []
def start():
    found.append(spawn(policy, [{PYTHON!r}, "-c", {STAYS!r}], stdout=subprocess.PIPE))
thread = threading.Thread(target=start)
thread.start()
thread.join()
read_line(found[0].stdout, 30)
print(*usage.process_tree(found[0].pid), flush=True)
input()
"""
    root = str(Path(__file__).parents[2])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    parent = subprocess.Popen([sys.executable, "-c", script], stdin=-1, stdout=-1, env=env)
    with parent:
        pids = [int(pid) for pid in read_line(parent.stdout).split()]
        # The thread that asked is gone long since; only the end of the process counts.
        assert wait_until_gone(pids, 0.2) == pids

        parent.kill()

        assert len(pids) == 6
        assert wait_until_gone(pids, 10) == []
    assert parent.returncode == -signal.SIGKILL


def test_many_threads_start_sandboxes_at_once(world):
    def square(number: int) -> str:
        return world.run("import sys; print(int(sys.argv[1]) ** 2)", number).output

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(square, range(16))) == [str(number**2) for number in range(16)]


def test_a_forked_worker_starts_its_own(world):
    world.run("pass")
    pid = os.fork()
    if pid == 0:
        os._exit(world.run("raise SystemExit(5)").code)

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5


def test_only_passed_descriptors_are_open_inside(world):
    ours, theirs = socket.socketpair()
    with ours, (world.data / "secret").open() as secret:
        os.set_inheritable(secret.fileno(), True)
        process = world.start(
            """
            import os, socket, sys
            door = socket.socket(fileno=int(sys.argv[1]))
            listing = map(int, os.listdir("/proc/self/fd"))
            still_open = [fd for fd in listing if os.path.exists(f"/proc/self/fd/{fd}")]
            door.sendall(str(sorted(still_open)).encode())
            door.sendall(door.recv(100).upper())
            """,
            str(theirs.fileno()),
            pass_fds=[theirs.fileno()],
            stdout=subprocess.PIPE,
        )
        number = theirs.fileno()
        theirs.close()
        inside = ours.recv(100).decode()
        ours.sendall(b"hello")

        assert ours.recv(100) == b"HELLO"
        assert inside == str([0, 1, 2, number])
        assert finish(process).code == 0


def test_a_command_or_environment_with_a_nul_is_refused(world):
    with pytest.raises(InvalidPolicy):
        spawn(world.policy(), ["/bin/true", "a\0b"])
    with pytest.raises(InvalidPolicy):
        spawn(world.policy(env={"A": "x\0--bind\0/\0/"}), ["/bin/true"])
    with pytest.raises(InvalidPolicy):
        spawn(world.policy(), [])


def test_no_thread_or_descriptor_stays_behind(world):
    def held() -> tuple[int, int]:
        return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()

    world.run("pass")
    before = held()
    for _ in range(5):
        world.run("pass")

    # Threads and descriptors of other tests may end meanwhile.
    assert all(now <= then for now, then in zip(held(), before, strict=True))
