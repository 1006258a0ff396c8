"""Code that takes all it can get: contained, while the platform goes on."""

from __future__ import annotations

import os
import subprocess
import time

from apps.deployments.sandbox import MIB, usage
from tests.child_output import read_line

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


def latency(seconds: float) -> float:
    """The longest that a small deed of the platform took during this time."""
    worst, end = 0.0, time.monotonic() + seconds
    while time.monotonic() < end:
        begun = time.monotonic()
        subprocess.run(["/bin/true"], check=True)
        worst = max(worst, time.monotonic() - begun)
        time.sleep(0.02)
    return worst


def test_fork_bomb_is_killed_while_other_processes_continue(world, limits, record_property):
    usual = latency(0.5)
    policy = world.policy(limits=limits(processes=100))
    with world.start(BOMB, policy=policy, stdout=subprocess.PIPE) as bomb:
        assert read_line(bomb.stdout) == b"lit\n"
        neighbour = world.run("import os; os.fork() and os.wait(); print('fine')")
        worst = latency(0.5)
        pids = usage.process_tree(bomb.pid)
        outcome = finish(bomb, timeout=60)

    record_property("worst_latency_seconds", worst)
    assert neighbour.output.splitlines() == ["fine", "fine"]
    assert worst < 1 + 10 * usual
    assert len(pids) <= 102
    assert outcome.code == 128 + 9
    assert outcome.stopped_because == (
        "it started more processes and threads than its limit of 100"
    )
    assert wait_until_gone(pids, 10) == []


def test_code_with_many_busy_threads_gets_idle_priority(world, limits):
    script = """
import os, time
for _ in range(60):
    if os.fork() == 0:
        while True:
            pass
print("lit", flush=True)
time.sleep(60)
"""
    usual = latency(0.5)
    with world.start(script, stdout=subprocess.PIPE) as process:
        assert read_line(process.stdout) == b"lit\n"
        end = time.monotonic() + 45
        while time.monotonic() < end and not runs_last(process):
            time.sleep(0.1)

        assert runs_last(process)
        assert process.poll() is None
        assert latency(0.5) < 0.5 + 10 * usual


def runs_last(process) -> bool:
    busy = usage.running_threads(usage.process_tree(process.pid))
    policies = [os.sched_getscheduler(thread) for thread in busy]
    return bool(policies) and set(policies) == {os.SCHED_IDLE}


def test_threads_count_as_processes(world, limits):
    outcome = world.run(
        """
        import _thread, time
        for count in range(1000):
            try:
                _thread.start_new_thread(time.sleep, (5,))
            except RuntimeError:
                break
        print(count)
        """,
        limits=limits(processes=20),
    )

    assert outcome.output == "18"  # besides pid 1 and the first thread


def test_one_process_gets_a_memory_error(world, limits):
    outcome = world.run(
        """
        try:
            bytearray(300 << 20)
        except MemoryError:
            print("refused")
        bytearray(50 << 20)
        """,
        limits=limits(memory_bytes=200 * MIB),
    )

    assert (outcome.code, outcome.output, outcome.stopped_because) == (0, "refused", None)


def test_memory_of_many_children_together_is_limited(world, limits):
    begun = time.monotonic()
    outcome = world.run(
        """
        import os, time
        for _ in range(16):
            if os.fork() == 0:
                kept = b"x" * (60 << 20)
                time.sleep(60)
        time.sleep(60)
        """,
        limits=limits(memory_bytes=200 * MIB),
    )

    assert outcome.stopped_because == "it used more memory than its limit of 200 MiB"
    assert outcome.code == 128 + 9
    assert time.monotonic() - begun < 50


def test_shared_memory_counts(world, limits):
    outcome = world.run(
        """
        import mmap, time
        kept = mmap.mmap(-1, 400 << 20)
        for place in range(0, len(kept), 4096):
            kept[place] = 1
        time.sleep(60)
        """,
        limits=limits(memory_bytes=200 * MIB),
    )

    assert outcome.stopped_because == "it used more memory than its limit of 200 MiB"


def test_shared_pages_of_forks_count_once(world, limits):
    with world.start(
        """
        import os, time
        kept = b"x" * (100 << 20)
        for _ in range(4):
            if os.fork() == 0:
                time.sleep(60)
        print("ready", flush=True)
        time.sleep(60)
        """,
        policy=world.policy(limits=limits(memory_bytes=200 * MIB)),
        stdout=subprocess.PIPE,
    ) as process:
        assert read_line(process.stdout) == b"ready\n"
        time.sleep(1)  # longer than the longest pause of the watchdog

        assert process.poll() is None
        assert usage.measure_usage(usage.process_tree(process.pid)).memory > 400 * MIB
        assert 100 * MIB < process.memory() < 150 * MIB


def test_a_file_cannot_outgrow_its_limit(world, limits):
    outcome = world.run(
        """
        import errno, sys
        try:
            with open(sys.argv[1] + "/big", "wb") as file:
                for _ in range(100):
                    file.write(bytes(1 << 20))
        except OSError as error:
            print(errno.errorcode[error.errno])
        """,
        world.scratch,
        limits=limits(file_bytes=10 * MIB),
    )

    assert outcome.output == "EFBIG"
    assert (world.scratch / "big").stat().st_size == 10 * MIB


def test_the_private_tmp_and_shared_memory_folder_are_bounded_and_forgotten(world, limits):
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

    # Twice: the second finds nothing of the first.
    for _ in range(2):
        outcome = world.run(script, limits=bounded, read_only=(), writable=(), cwd="/")
        assert outcome.output.splitlines() == expected


def test_total_size_of_many_files_is_limited(world, limits):
    outcome = world.run(
        """
        import sys, time
        for number in range(60):
            with open(f"{sys.argv[1]}/{number}", "wb") as file:
                file.write(bytes(1 << 20))
            time.sleep(0.02)
        time.sleep(60)
        """,
        world.scratch,
        limits=limits(disk_bytes=20 * MIB),
    )

    assert outcome.stopped_because == "it wrote more to disk than its limit of 20 MiB"


def test_open_files_and_core_dumps_are_limited(world, limits):
    outcome = world.run(
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

    assert outcome.output.splitlines() == ["EMFILE", "(50, 50) (0, 0)"]


def test_cpu_time_is_limited_where_a_policy_says_so(world, limits):
    outcome = world.run("while True: pass", limits=limits(cpu_seconds=1))

    assert outcome.code == 128 + 9
