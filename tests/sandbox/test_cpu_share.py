"""Agent code takes no more than its share of a busy CPU, with and without control groups."""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from apps.deployments.sandbox import InvalidPolicy, cpu_groups, usage, watchdog
from apps.deployments.sandbox.cpu_groups import CpuGroups
from apps.deployments.sandbox.cpu_shares import WINDOW_SECONDS, CpuShares
from tests.child_output import read_line
from tests.installation import wait_until
from tests.required_tools import skip_now

from .test_lifetime import wait_until_gone

# All start at once: after the first, the others would be forked with the lowest priority.
BUSY = """
import os, sys, time
start, end = os.pipe()
for _ in range(int(sys.argv[1])):
    if os.fork() == 0:
        os.close(end)
        if sys.argv[2] == "sessions":
            os.setsid()
        os.read(start, 1)
        while True:
            pass
print("ready", flush=True)
sys.stdin.readline()
os.close(end)
time.sleep(600)
"""
ATTACKERS = 200
SECONDS = 10.0


@pytest.fixture
def cpu_group(folders):
    """The control group of a running sandbox, with its process."""
    with folders.start("print('ready', flush=True); input()", stdin=-1, stdout=-1) as process:
        if process.cpu_group is None:
            skip_now("this machine lets the tests create no CPU group")
        assert read_line(process.stdout) == b"ready\n"
        yield process.cpu_group, process


def groups_of(pid: int) -> list[str]:
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    return [line.rpartition(":")[2] for line in lines]


def test_every_process_of_a_sandbox_is_in_its_group(cpu_group):
    group, process = cpu_group
    pids = usage.process_tree(process.pid)

    assert len(pids) >= 2
    inner = "/".join(group.parts[-3:])
    for pid in pids:
        assert any(path.endswith(f"/{inner}") for path in groups_of(pid))
    process.kill()
    process.wait(20)
    assert wait_until_gone(pids) == []
    end = time.monotonic() + 20
    while time.monotonic() < end and group.exists():
        time.sleep(0.05)
    assert not group.exists()


def test_agents_and_builds_have_smaller_weights_than_the_platform(cpu_group):
    group, _ = cpu_group
    name, default = ("cpu.shares", 1024) if (group / "cpu.shares").exists() else ("cpu.weight", 100)
    owner, agents = group.parent, group.parent.parent
    builds = agents.with_name(f"slipway-builds-{os.getpid()}")

    assert int((agents / name).read_text()) == default // 2
    assert int((builds / name).read_text()) == default // 4
    assert int((owner / name).read_text()) == default
    assert int((group / name).read_text()) == default


def test_an_owner_has_one_share_for_all_its_sandboxes(folders, cpu_group, limits):
    """A second sandbox takes from the first one of its owner, not from those of others."""
    agents = cpu_group[0].parent.parent
    wait = "print('ready', flush=True); input()"
    policies = {
        "first": folders.policy(owner="organization-1"),
        "second": folders.policy(owner="organization-1"),
        "other": folders.policy(owner="organization-2"),
        "build": folders.policy(owner="organization-1", limits=limits(is_background=True)),
    }
    with contextlib.ExitStack() as stack:
        groups = {}
        for name, policy in policies.items():
            process = folders.start(wait, policy=policy, stdin=-1, stdout=-1)
            stack.enter_context(process)
            groups[name] = process.cpu_group

        assert groups["first"].parent == groups["second"].parent == agents / "organization-1"
        assert groups["first"] != groups["second"]
        assert groups["other"].parent == agents / "organization-2"
        builds = agents.with_name(f"slipway-builds-{os.getpid()}")
        assert groups["build"].parent == builds / "organization-1"

    end = time.monotonic() + 20
    while time.monotonic() < end and any(group.parent.exists() for group in groups.values()):
        time.sleep(0.05)
    assert [group for group in groups.values() if group.parent.exists()] == []


def test_an_owner_cannot_name_another_folder(folders):
    with pytest.raises(InvalidPolicy):
        folders.start("", policy=folders.policy(owner="../organization-1"))


def test_code_cannot_change_the_priority_of_its_session(folders):
    result = folders.run(
        """
        import errno
        for name in ("autogroup", "oom_score_adj", "comm"):
            try:
                with open(f"/proc/self/{name}", "w") as file:
                    file.write("0")
            except OSError as error:
                print(errno.errorcode[error.errno])
        """
    )

    assert result.output.split() == ["EROFS", "EROFS", "EROFS"]


def start_competitor(cpu: int) -> subprocess.Popen:
    """A busy process in a session of its own, as those of the platform.

    On one CPU: two on the same would leave another one to the attackers, whatever their weights.
    """
    script = f"import os; os.sched_setaffinity(0, [{cpu}])\nwhile True: pass"
    command = [sys.executable, "-I", "-S", "-c", script]
    return subprocess.Popen(command, start_new_session=True)


def used_seconds(pids) -> float:
    """In nanoseconds of the scheduler: each of 200 processes may use less than a clock tick."""
    total = 0
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            total += int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])
    return total / 1e9


def test_the_watchdog_has_priority_over_what_it_stops(folders):
    """Without control groups, the busy threads of an agent must not keep it waiting."""
    with folders.start("input()", stdin=-1):
        [thread] = [t for t in threading.enumerate() if t.name == "sandbox-watchdog"]
        expected = -15 if watchdog._may_raise_priorities() else 0
        wait_until(
            lambda: os.getpriority(os.PRIO_PROCESS, thread.native_id) == expected, "the priority"
        )

    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == 0


@pytest.mark.slow  # it loads the machine
@pytest.mark.parametrize("kind", ["processes", "sessions"])
@pytest.mark.parametrize("has_groups", [True, False], ids=["groups", "priorities"])
def test_many_busy_processes_leave_the_platform_its_share(
    folders, monkeypatch, record_property, kind, has_groups
):
    """One busy process per CPU competes with the attackers.

    Measured as a ratio of CPU times, which other work on the machine does not change.
    """
    if not has_groups:
        monkeypatch.setattr(cpu_groups.cpu_groups, "create", lambda *_, **__: None)
    competitors = []
    with folders.start(BUSY, str(ATTACKERS), kind, stdin=-1, stdout=-1) as attack:
        try:
            if has_groups and attack.cpu_group is None:
                skip_now("this machine lets the tests create no CPU group")
            competitors += [start_competitor(cpu) for cpu in os.sched_getaffinity(0)]
            if not has_groups and kind == "sessions" and watchdog._has_autogroup():
                assert attack.wait(120) == 128 + 9
                assert "sessions" in attack.stopped_because
                return
            assert read_line(attack.stdout, 120) == b"ready\n"
            attack.stdin.write(b"start\n")
            attack.stdin.flush()
            if not has_groups:
                wait_until_idle(attack)
            tree = usage.process_tree(attack.pid)
            before = used_seconds(tree), used_seconds(p.pid for p in competitors)
            time.sleep(SECONDS)
            attackers = used_seconds(tree) - before[0]
            platform = used_seconds(p.pid for p in competitors) - before[1]
        finally:
            for competitor in competitors:
                competitor.kill()
                competitor.wait()

    share = platform / (platform + attackers)
    record_property("platform_share", round(share, 3))
    assert len(tree) > ATTACKERS
    assert platform > 0.1
    assert share > 0.5


def wait_until_idle(process) -> None:
    """Wait for the watchdog, which has to notice the attack on a starved machine."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        busy = usage.running_threads(usage.process_tree(process.pid))
        policies = {os.sched_getscheduler(thread) for thread in busy}
        if policies == {os.SCHED_IDLE}:
            return
        time.sleep(0.5)
    raise TimeoutError("The processes kept their priority.")


class TestFakeHierarchies:
    """Both versions of control groups, as files: the machine has one of them at most."""

    @pytest.fixture
    def proc(self, tmp_path):
        folder = tmp_path / "proc"
        folder.mkdir()
        return folder

    def prepare(self, proc):
        """Return the folder for agents, with the one for builds next to it."""
        groups = CpuGroups(proc)
        groups._prepare()
        atexit.unregister(groups._remove_all)
        return groups._folders.get("slipway-agents-")

    def write(self, proc, *, kind, options, mount, own, root="/"):
        controllers = "cpu,cpuacct" if kind == "cgroup" else ""
        (proc / "cgroup").write_text(f"3:{controllers}:{own}\n")
        (proc / "mountinfo").write_text(f"30 24 0:26 {root} {mount} rw - {kind} none {options}\n")

    def group_of_version_2(self, folder, *, procs="", is_root=False):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup.controllers").write_text("cpuset cpu memory")
        (folder / "cgroup.subtree_control").write_text("")
        (folder / "cgroup.procs").write_text(procs)
        if not is_root:
            (folder / "cgroup.type").write_text("domain")

    def test_version_1(self, proc, tmp_path):
        mount = tmp_path / "cpu"
        (mount / "service").mkdir(parents=True)
        self.write(proc, kind="cgroup", options="rw,cpu,cpuacct", mount=mount, own="/service")

        folder = self.prepare(proc)

        assert folder == mount / "service" / f"slipway-agents-{os.getpid()}"
        assert (folder / "cpu.shares").read_text() == "512"
        builds = mount / "service" / f"slipway-builds-{os.getpid()}"
        assert (builds / "cpu.shares").read_text() == "256"

    def test_groups_of_killed_processes_are_removed(self, proc, tmp_path):
        ended = subprocess.Popen(["/bin/true"])
        ended.wait()
        mount = tmp_path / "cpu"
        (mount / f"slipway-agents-{ended.pid}" / "organization-1" / "0").mkdir(parents=True)
        (mount / f"slipway-builds-{ended.pid}" / "organization-1").mkdir(parents=True)
        (mount / "slipway-agents-1" / "0").mkdir(parents=True)
        self.write(proc, kind="cgroup", options="rw,cpu", mount=mount, own="/")

        folder = self.prepare(proc)

        builds = f"slipway-builds-{os.getpid()}"
        assert {path.name for path in mount.iterdir()} == {folder.name, builds, "slipway-agents-1"}

    def test_version_1_of_a_container_that_sees_its_own_part(self, proc, tmp_path):
        mount = tmp_path / "cpu"
        mount.mkdir()
        self.write(
            proc, kind="cgroup", options="rw,cpu", mount=mount, own="/docker/1", root="/docker/1"
        )

        folder = self.prepare(proc)

        assert folder is not None
        assert folder.parent == mount

    def test_a_group_outside_of_the_mounted_part_is_not_used(self, proc, tmp_path):
        self.write(proc, kind="cgroup", options="rw,cpu", mount=tmp_path, own="/../other")

        assert self.prepare(proc) is None

    @pytest.fixture
    def _new_groups_have_files(self, monkeypatch):
        """New folders have the files that the kernel gives to groups of version 2."""
        make = Path.mkdir

        def mkdir(folder, *arguments, **options):
            make(folder, *arguments, **options)
            monkeypatch.setattr(Path, "mkdir", make)
            self.group_of_version_2(folder)
            monkeypatch.setattr(Path, "mkdir", mkdir)

        monkeypatch.setattr(Path, "mkdir", mkdir)

    @pytest.mark.usefixtures("_new_groups_have_files")
    def test_root_of_a_machine_with_version_2(self, proc, tmp_path):
        mount = tmp_path / "cgroup"
        self.group_of_version_2(mount, is_root=True)
        (mount / "cgroup.type").unlink()
        self.write(proc, kind="cgroup2", options="rw", mount=mount, own="/user.slice/1.scope")
        self.group_of_version_2(mount / "user.slice" / "1.scope", procs="1")

        folder = self.prepare(proc)

        assert folder is not None
        assert folder.parent == mount
        assert (folder / "cpu.weight").read_text() == "50"
        assert (mount / f"slipway-builds-{os.getpid()}" / "cpu.weight").read_text() == "25"
        assert (mount / "cgroup.subtree_control").read_text() == "+cpu"
        assert (folder / "cgroup.subtree_control").read_text() == "+cpu"
        assert not (mount / "slipway-platform").exists()

    @pytest.mark.usefixtures("_new_groups_have_files")
    @pytest.mark.parametrize("own", ["/slipway.service", "/slipway.service/slipway-platform"])
    def test_delegated_group_of_version_2(self, proc, tmp_path, monkeypatch, own):
        service = tmp_path / "cgroup" / "slipway.service"
        self.group_of_version_2(tmp_path / "cgroup")
        self.group_of_version_2(service, procs="17\n")
        self.group_of_version_2(service / "slipway-platform")
        self.write(proc, kind="cgroup2", options="rw", mount=tmp_path / "cgroup", own=own)
        monkeypatch.setattr(cpu_groups, "_is_delegated", lambda group: group == service)

        folder = self.prepare(proc)

        assert folder == service / f"slipway-agents-{os.getpid()}"
        assert (service / "cgroup.subtree_control").read_text() == "+cpu"
        moved = (service / "slipway-platform" / "cgroup.procs").read_text()
        assert moved == ("17" if own == "/slipway.service" else "")

    @pytest.mark.usefixtures("_new_groups_have_files")
    def test_sandboxes_of_version_2_are_below_their_owner(self, proc, tmp_path):
        mount = tmp_path / "cgroup"
        self.group_of_version_2(mount, is_root=True)
        self.write(proc, kind="cgroup2", options="rw", mount=mount, own="/")
        groups = CpuGroups(proc)

        group = groups.create("organization-1")
        atexit.unregister(groups._remove_all)

        assert group is not None
        owner = group.parent
        assert owner == mount / f"slipway-agents-{os.getpid()}" / "organization-1"
        assert (owner / "cgroup.subtree_control").read_text() == "+cpu"

    def test_a_group_of_a_service_manager_is_left_alone(self, proc, tmp_path, monkeypatch):
        mount = tmp_path / "cgroup"
        self.group_of_version_2(mount)
        self.group_of_version_2(mount / "session.scope", procs="1")
        self.write(proc, kind="cgroup2", options="rw", mount=mount, own="/session.scope")
        monkeypatch.setattr(cpu_groups, "_is_delegated", lambda _group: False)

        assert self.prepare(proc) is None
        assert not (mount / "session.scope" / "slipway-platform").exists()

    def test_without_a_cpu_controller_no_group_is_made(self, proc, tmp_path):
        mount = tmp_path / "cgroup"
        self.group_of_version_2(mount, is_root=True)
        (mount / "cgroup.controllers").write_text("memory")
        self.write(proc, kind="cgroup2", options="rw", mount=mount, own="/")

        assert self.prepare(proc) is None
        assert list(mount.glob("slipway-*")) == []

    def test_a_read_only_hierarchy_is_not_used(self, proc, tmp_path):
        self.write(proc, kind="cgroup", options="rw,cpu", mount=tmp_path / "missing", own="/")

        assert self.prepare(proc) is None
        assert CpuGroups(proc).create("organization-1") is None


class TestSessions:
    """Where sessions have shares of their own, and the tree has no control group."""

    @pytest.fixture
    def watch(self, folders, monkeypatch):
        monkeypatch.setattr(cpu_groups.cpu_groups, "create", lambda *_, **__: None)
        if not watchdog._has_autogroup():
            skip_now("this kernel does not share the CPU between sessions")
        script = "print('ready', flush=True); input()"
        with folders.start(script, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            # Before, the tree has processes of the start that end at once.
            assert read_line(process.stdout) == b"ready\n"
            yield watchdog.SandboxWatch(process)

    def test_sessions_get_the_nice_value_of_the_sandbox(self, watch):
        pid = usage.process_tree(watch.process.pid)[-1]
        session = os.getsid(pid)

        end = time.monotonic() + 20
        while watch._lower_sessions({session: pid}) and time.monotonic() < end:
            time.sleep(0.1)

        assert Path(f"/proc/{pid}/autogroup").read_text().endswith(" nice 5\n")

    def test_too_many_sessions_end_the_sandbox(self, watch, monkeypatch):
        many = {number: os.getpid() for number in range(watchdog._VERY_GREEDY_THREADS + 1)}

        self.pretend(monkeypatch, many, above=0)

        assert not watch.check()
        assert "sessions" in watch.process.stopped_because

    def test_busy_sessions_that_keep_their_priority_end_the_sandbox(self, watch, monkeypatch):
        many = {number: os.getpid() for number in range(watchdog._GREEDY_THREADS + 1)}
        self.pretend(monkeypatch, many, above=len(many))

        assert watch.check()  # they are not busy
        watch.is_idle = True

        assert not watch.check()
        assert "sessions" in watch.process.stopped_because

    def pretend(self, monkeypatch, sessions, *, above):
        def lower(watch, sessions):
            watch.sessions = dict.fromkeys(sessions, -1)
            return above

        measured = usage.ProcessUsage(0, 1, sessions)
        monkeypatch.setattr(usage, "measure_usage", lambda _pids: measured)
        monkeypatch.setattr(watchdog.SandboxWatch, "_lower_sessions", lower)


class TestGreedyOwners:
    """Without control groups: the owner of busy sandboxes gets a lower priority."""

    @pytest.fixture
    def watch(self, folders, monkeypatch):
        monkeypatch.setattr(cpu_groups.cpu_groups, "create", lambda *_, **__: None)
        monkeypatch.setattr(watchdog, "_may_raise_priorities", lambda: os.geteuid() == 0)
        # The watchdog's own thread must not restore what the test lowers.
        monkeypatch.setattr(watchdog.watchdog, "add", lambda _process: None)
        script = "import os; os.nice(14) if os.fork() == 0 else print('ready', flush=True); input()"
        policy = folders.policy(owner="organization-1")
        with folders.start(script, policy=policy, stdin=-1, stdout=-1) as process:
            assert read_line(process.stdout) == b"ready\n"
            yield watchdog.SandboxWatch(process, CpuShares(time.monotonic(), cpus=2))

    def priorities(self, watch) -> set[int]:
        pids = usage.process_tree(watch.process.pid)
        return {os.getpriority(os.PRIO_PROCESS, pid) for pid in pids}

    def test_priority_follows_what_the_owner_uses(self, watch, monkeypatch):
        wait_until(lambda: self.priorities(watch) == {5, 19}, "the fork")
        pids = usage.process_tree(watch.process.pid)
        used = iter([0.0, 0.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0])
        monkeypatch.setattr(usage, "cpu_seconds", lambda _pids: next(used))
        start = time.monotonic()
        seen = []
        for check in range(8):
            watch._follow_owner(pids, start + check * WINDOW_SECONDS)
            seen.append((watch.nice, self.priorities(watch)))

        normal, lowered = (5, {5, 19}), (15, {15, 19})
        if os.geteuid() != 0:
            lowered = (15, {5, 19})  # it could not be raised again
        assert seen == [normal] * 3 + [lowered] * 3 + [normal] * 2

    def test_other_owners_keep_their_priority(self, watch, monkeypatch):
        monkeypatch.setattr(usage, "cpu_seconds", lambda _pids: 0.0)
        now = time.monotonic()
        for window in range(3):
            watch._shares.record("organization-2", "tree", 3.0 * window, now)
            watch._follow_owner(usage.process_tree(watch.process.pid), now)
            now += WINDOW_SECONDS

        assert watch._shares.is_greedy("organization-2")
        assert watch.nice == 5
        assert 15 not in self.priorities(watch)
