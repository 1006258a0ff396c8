"""Resource limits: code that exhausts them is stopped while the platform continues."""

from __future__ import annotations

import os
import subprocess
import time

from apps.deployments.sandbox import MIB, usage
from tests.child_output import read_line
from tests.installation import PATIENCE_SECONDS, wait_until

from .conftest import finish
from .test_lifetime import wait_until_gone

BOMB = """
import os
print("lit", flush=True)
while True:
    try:
        os.fork()
    except OSError:
        pass
"""


def run_trivial_commands() -> None:
    """Start processes one after the other. Unlimited, a fork bomb stalls them for good."""
    for _ in range(10):
        subprocess.run(["/bin/true"], check=True, timeout=PATIENCE_SECONDS)


def test_fork_bomb_is_killed_while_other_processes_continue(folders, limits):
    policy = folders.policy(limits=limits(processes=100))
    with folders.start(BOMB, policy=policy, stdout=subprocess.PIPE) as bomb:
        assert read_line(bomb.stdout) == b"lit\n"
        other_result = folders.run("import os; os.fork() and os.wait(); print('fine')")
        run_trivial_commands()
        pids = usage.process_tree(bomb.pid)
        result = finish(bomb)

    assert other_result.output.splitlines() == ["fine", "fine"]
    assert len(pids) <= 102
    assert result.code == 128 + 9
    assert result.stopped_because == ("it started more processes and threads than its limit of 100")
    assert wait_until_gone(pids) == []


def test_code_with_many_busy_threads_gets_idle_priority(folders, limits):
    script = """
import os, time
for _ in range(60):
    if os.fork() == 0:
        while True:
            pass
print("lit", flush=True)
time.sleep(600)
"""
    with folders.start(script, stdout=subprocess.PIPE) as process:
        assert read_line(process.stdout) == b"lit\n"
        wait_until(lambda: has_idle_priority(process), "idle priority")
        # The outermost process ends the others when the sandbox is killed.
        assert os.sched_getscheduler(process.pid) == os.SCHED_OTHER
        assert process.poll() is None
        run_trivial_commands()


def has_idle_priority(process) -> bool:
    busy = usage.running_threads(usage.process_tree(process.pid))
    policies = [os.sched_getscheduler(thread) for thread in busy]
    return bool(policies) and set(policies) == {os.SCHED_IDLE}


def test_threads_count_towards_the_process_limit(folders, limits):
    result = folders.run(
        """
        import _thread, time
        for count in range(1000):
            try:
                _thread.start_new_thread(time.sleep, (600,))
            except RuntimeError:
                break
        print(count)
        """,
        limits=limits(processes=20),
    )

    assert result.output == "18"  # besides pid 1 and the first thread


def test_a_process_above_its_memory_limit_gets_a_memory_error(folders, limits):
    result = folders.run(
        """
        try:
            bytearray(300 << 20)
        except MemoryError:
            print("refused")
        bytearray(50 << 20)
        """,
        limits=limits(memory_bytes=200 * MIB),
    )

    assert (result.code, result.output, result.stopped_because) == (0, "refused", None)


def test_memory_of_many_children_together_is_limited(folders, limits):
    result = folders.run(
        """
        import os, time
        for _ in range(16):
            if os.fork() == 0:
                kept = b"x" * (60 << 20)
                time.sleep(600)
        time.sleep(600)
        """,
        limits=limits(memory_bytes=200 * MIB),
    )

    assert result.stopped_because == "it used more memory than its limit of 200 MiB"
    assert result.code == 128 + 9


def test_shared_memory_counts_towards_the_memory_limit(folders, limits):
    result = folders.run(
        """
        import mmap, time
        kept = mmap.mmap(-1, 400 << 20)
        for place in range(0, len(kept), 4096):
            kept[place] = 1
        time.sleep(600)
        """,
        limits=limits(memory_bytes=200 * MIB),
    )

    assert result.stopped_because == "it used more memory than its limit of 200 MiB"


def test_shared_pages_of_forks_count_once(folders, limits):
    with folders.start(
        """
        import os, time
        kept = b"x" * (100 << 20)
        for _ in range(4):
            if os.fork() == 0:
                time.sleep(600)
        print("ready", flush=True)
        time.sleep(600)
        """,
        policy=folders.policy(limits=limits(memory_bytes=200 * MIB)),
        stdout=subprocess.PIPE,
    ) as process:
        assert read_line(process.stdout) == b"ready\n"
        time.sleep(1)  # longer than the longest pause of the watchdog

        assert process.poll() is None
        assert usage.measure_usage(usage.process_tree(process.pid)).memory > 400 * MIB
        assert 100 * MIB < process.memory() < 150 * MIB


def test_a_file_cannot_outgrow_its_limit(folders, limits):
    result = folders.run(
        """
        import errno, sys
        try:
            with open(sys.argv[1] + "/big", "wb") as file:
                for _ in range(100):
                    file.write(bytes(1 << 20))
        except OSError as error:
            print(errno.errorcode[error.errno])
        """,
        folders.scratch,
        limits=limits(file_bytes=10 * MIB),
    )

    assert result.output == "EFBIG"
    assert (folders.scratch / "big").stat().st_size == 10 * MIB


def test_temporary_folders_are_limited_and_deleted_with_the_sandbox(folders, limits):
    script = """
        import errno, os
        for folder in ("/tmp", "/dev/shm"):
            print(os.listdir(folder))
            try:
                with open(folder + "/big", "wb") as file:
                    for _ in range(100):
                        file.write(bytes(1 << 20))
            except OSError as error:
                print(errno.errorcode[error.errno])
        """
    bounded = limits(temporary_bytes=10 * MIB)
    expected = ["[]", "ENOSPC", "[]", "ENOSPC"]

    # Twice: the second sandbox must not find files of the first.
    for _ in range(2):
        result = folders.run(script, limits=bounded, read_only=(), writable=(), cwd="/")
        assert result.output.splitlines() == expected


def test_total_size_of_many_files_is_limited(folders, limits):
    result = folders.run(
        """
        import sys, time
        for number in range(60):
            with open(f"{sys.argv[1]}/{number}", "wb") as file:
                file.write(bytes(1 << 20))
            time.sleep(0.02)
        time.sleep(600)
        """,
        folders.scratch,
        limits=limits(disk_bytes=20 * MIB),
    )

    assert result.stopped_because == "it wrote more to disk than its limit of 20 MiB"


def test_open_files_and_core_dumps_are_limited(folders, limits):
    result = folders.run(
        """
        import errno, os, resource
        try:
            while True:
                os.dup(0)
        except OSError as error:
            print(errno.errorcode[error.errno])
        print(resource.getrlimit(resource.RLIMIT_NOFILE), resource.getrlimit(resource.RLIMIT_CORE))
        """,
        limits=limits(open_files=50),
    )

    assert result.output.splitlines() == ["EMFILE", "(50, 50) (0, 0)"]


def test_cpu_time_is_limited_if_the_policy_sets_a_limit(folders, limits):
    result = folders.run("while True: pass", limits=limits(cpu_seconds=1))

    assert result.code == 128 + 9
