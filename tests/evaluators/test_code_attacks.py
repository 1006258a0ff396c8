"""Attempts of a hostile function to leave its sandbox, to outlast it, or to break the platform.

Each ends with a reason for the log, and another function is served afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex

import pytest

from apps.core.json import dumps
from apps.deployments.sandbox import probe
from apps.evaluators.code import process
from apps.evaluators.code.process import CodeReply
from apps.evaluators.services import code_runs
from tests.installation import PATIENCE_SECONDS, wait_until
from tests.required_tools import skip_now
from tests.sandbox.conftest import AGENT_UID

pytestmark = pytest.mark.integration
PLATFORM_FILE = str(Path(__file__).parents[2] / "config" / "env.py")
SUBJECT = dumps({"run": {"outputs": {"answer": 42}}, "example": None})


@pytest.fixture(autouse=True, scope="module")
def _isolation():
    if probe().mode.value != "bubblewrap":
        skip_now(probe().description)


@pytest.fixture
def run(monkeypatch):
    """Return a function that calls `perform_eval` of the code for some runs."""

    def call(code: str, *, count: int = 1, seconds: float = PATIENCE_SECONDS) -> list[CodeReply]:
        monkeypatch.setattr(process, "EVALUATION_SECONDS", seconds)
        monkeypatch.setattr(code_runs, "BATCH_SECONDS", 10 * PATIENCE_SECONDS)
        replies = asyncio.run(
            code_runs.run_code(textwrap.dedent(code), AGENT_UID, [SUBJECT] * count)
        )
        assert isinstance(replies, list)
        return replies

    return call


def only(replies: list[CodeReply]) -> CodeReply:
    [reply] = replies
    return reply


def test_the_environment_and_the_files_have_nothing_of_the_platform(run, monkeypatch, tmp_path):
    monkeypatch.setenv("SECRET_KEY", "the key of everything")
    (tmp_path / "secret").write_text("of the platform")
    (tmp_path / "secret").chmod(0o644)
    reply = only(
        run(
            f"""
            import os, sys
            def read(path):
                try:
                    return open(path).read()
                except OSError as error:
                    return type(error).__name__
            def perform_eval(run):
                environment = dict(os.environ)
                environment.pop("LC_CTYPE", None)
                passwd = read("/etc/passwd")
                return {{"value": repr([
                    sorted(environment), "root" in passwd, read("/etc/shadow"),
                    read({str(tmp_path / "secret")!r}), read({PLATFORM_FILE!r}),
                    read("/proc/1/environ"), os.path.exists("/run"), os.path.exists("/home"),
                    sorted(os.listdir("/tmp")), [name for name in sys.modules if "django" in name],
                ])}}
            """
        )
    )
    names, has_root, *files = eval(reply.result["value"])

    assert names == ["HOME", "LANG", "PATH", "PWD", "TMPDIR"]
    assert not has_root
    assert files[:3] == ["FileNotFoundError"] * 3
    assert "SECRET_KEY" not in files[3]
    assert files[4:] == [False, False, [], []]


def test_only_its_own_loopback_address_exists(run):
    reply = only(
        run(
            """
            import socket
            def attempt(address):
                try:
                    socket.create_connection(address, 2)
                except OSError as error:
                    return type(error).__name__ + ":" + str(error.errno)
                return "connected"
            def perform_eval(run):
                names = [name for _, name in socket.if_nameindex()]
                results = [attempt(a) for a in [("1.1.1.1", 53), ("10.0.0.1", 80),
                    ("169.254.169.254", 80), ("example.com", 443), ("127.0.0.1", 61080)]]
                try:
                    open("/tmp/x", "w").close(); socket.socket(socket.AF_VSOCK)
                except (OSError, AttributeError) as error:
                    results.append(type(error).__name__)
                return {"value": repr([names, results])}
            """
        )
    )
    names, results = eval(reply.result["value"])

    assert names == ["lo"]
    assert "connected" not in results
    assert results[0] == results[2] == "OSError:101"  # no route leads anywhere


def test_endless_loop_ends_at_its_time_and_the_next_run_is_served(run):
    started = time.monotonic()
    first, second = run(
        """
        import os
        marker = "/tmp/seen"
        def perform_eval(run):
            while True:
                pass
        """,
        count=2,
        seconds=3,
    )

    assert first.error == second.error == "The code took longer than 3 seconds."
    assert time.monotonic() - started < PATIENCE_SECONDS + 10


def test_code_that_hangs_while_it_is_loaded_ends_too(run):
    reply = only(run("import time\ntime.sleep(1000)\ndef perform_eval(run): ...", seconds=3))

    assert "longer than 3 seconds" in reply.error


def test_fork_bomb_is_ended(run):
    reply = only(
        run(
            """
            import os
            def perform_eval(run):
                while True:
                    try:
                        os.fork()
                    except OSError:
                        pass
            """
        )
    )

    assert "processes" in reply.error or "longer than" in reply.error


def test_threads_are_limited(run):
    reply = only(
        run(
            """
            import threading, time
            def perform_eval(run):
                for _ in range(1000):
                    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
            """
        )
    )

    assert "can't start new thread" in reply.error or "processes and threads" in reply.error


def test_memory_is_limited(run):
    reply = only(
        run(
            """
            def perform_eval(run):
                kept = []
                while True:
                    kept.append(bytearray(b"x" * 1_000_000))
            """
        )
    )

    assert "MemoryError" in reply.error or "more memory" in reply.error


def test_children_share_the_limit_of_memory(run):
    reply = only(
        run(
            """
            import os, time
            def perform_eval(run):
                for _ in range(8):
                    if os.fork() == 0:
                        kept = bytearray(b"x" * 200_000_000)
                        time.sleep(1000)
                time.sleep(1000)
            """
        )
    )

    assert "more memory than its limit of 512 MiB" in reply.error


def test_files_are_limited(run):
    reply = only(
        run(
            """
            def perform_eval(run):
                for number in range(100):
                    with open(f"/tmp/{number}", "wb") as file:
                        file.write(b"x" * 4_000_000)
            """
        )
    )

    assert "No space left" in reply.error
    reply = only(run("def perform_eval(run):\n open('/usr/x', 'w')"))
    assert "Read-only file system" in reply.error or "Permission denied" in reply.error


def test_output_without_end_is_cut(run):
    reply = only(
        run(
            """
            import os, sys
            def perform_eval(run):
                for _ in range(100):
                    print("x" * 1_000_000)
                    os.write(1, b"y" * 1_000_000)
                    sys.__stdout__.write("z" * 1_000_000)
                return 1
            """
        )
    )

    assert (reply.result, reply.error) == (1, "")
    assert reply.output == "x" * 8_000


def test_result_of_100_mb_is_refused(run):
    reply = only(run("def perform_eval(run):\n return 'x' * 100_000_000"))

    assert "1,048,576 bytes" in reply.error


@pytest.mark.parametrize(
    ("exit_call", "text"),
    [
        ("os._exit(0)", "ended its process, with status 0"),
        ("os._exit(7)", "ended its process, with status 7"),
        ("os.kill(os.getpid(), 9)", "ended its process, with status 137"),
        ("sys.exit(3)", "SystemExit: 3"),
        ("os.abort()", "ended its process, with status 134"),
        ("os.closerange(3, 4096)", "ended its process, with status 1"),
    ],
)
def test_code_that_ends_its_process_fails_alone(run, exit_call, text):
    code = f"""
    import os, sys
    def perform_eval(run):
        {exit_call}
    """
    for reply in run(code, count=2):
        assert text in reply.error


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        ("b'no length'", "more than 1,048,576 bytes"),
        ("size(2 ** 31)", "more than 1,048,576 bytes"),
        ("size(5) + b'hello'", "The result is not JSON"),
        ("size(2) + b'[]'", "The result is not JSON of at most"),
        ("size(14) + b'{\"error\": [1]}'", "wrote to its connection"),
        ("size(20000) + b'[' * 20000", "The result is not JSON"),
        ("size(len(PICKLE)) + PICKLE", "The result is not JSON"),
    ],
)
def test_frames_that_are_no_reply_are_refused(run, frame, text):
    code = """
    import os, pickle, time
    class Evil:
        def __reduce__(self):
            return (os.system, ("touch /tmp/evil",))
    PICKLE = pickle.dumps(Evil())
    def size(number):
        return number.to_bytes(4, "big")
    def perform_eval(run):
        for fd in os.listdir("/proc/self/fd"):
            try:
                os.write(int(fd), FRAME)
            except OSError:
                pass
        time.sleep(1000)
    """
    reply = only(run(code.replace("FRAME", frame)))

    assert text in reply.error
    assert not Path("/tmp/evil").exists()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("object()", "Object of type object is not JSON"),
        ("b'bytes'", "Object of type bytes is not JSON"),
        ("float('nan')", "not JSON"),
        ("10 ** 5000", "not JSON"),
        ("pickle.dumps(run)", "not JSON"),
        ("deep(150_000)", "not JSON"),
        ("deep(300)", "not JSON of at most 200 levels"),
    ],
)
def test_values_that_are_not_json_are_refused(run, value, text):
    reply = only(
        run(
            f"""
            import pickle
            def deep(levels):
                value = []
                for _ in range(levels):
                    value = [value]
                return value
            def perform_eval(run):
                return {value}
            """
        )
    )

    assert text in reply.error


def test_process_is_warm_and_what_earlier_runs_left_is_replaced(run):
    replies = run(
        """
        import os
        seen = []
        def perform_eval(run):
            seen.append(1)
            if len(seen) == 3:
                os._exit(1)
            return {"seen": len(seen), "process": os.getpid()}
        """,
        count=4,
    )

    # The third call ends the process, and is made again in another one.
    assert [reply.result["seen"] for reply in replies] == [1, 2, 1, 2]


def test_no_process_is_left(run):
    name = token_hex(7)  # of these processes alone: other tests have such processes, too
    code = """
    import ctypes, os, time
    def perform_eval(run):
        ctypes.CDLL(None).prctl(15, NAME, 0, 0, 0)  # PR_SET_NAME
        if os.fork():
            return open("/proc/self/comm").read()
        time.sleep(999)
    """
    reply = only(run(code.replace("NAME", repr(name.encode()))))

    assert reply.result == f"{name}\n"
    wait_until(lambda: name not in set(_names()))


def _names() -> Iterator[str]:
    for path in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            yield path.read_text().strip()


def test_traceback_has_the_frames_of_the_user_only(run):
    reply = only(
        run(
            """
            import json
            def parse(text):
                return json.loads(text)
            def perform_eval(run):
                print("parsing", run["outputs"]["answer"])
                return parse("{")
            """
        )
    )

    assert 'File "evaluator.py", line 7, in perform_eval' in reply.error
    assert 'return parse("{")' in reply.error
    assert 'File "evaluator.py", line 4, in parse' in reply.error
    assert "json.decoder.JSONDecodeError" in reply.error
    assert reply.error.count("File ") == 2
    assert reply.output == "parsing 42\n"


def test_without_namespaces_functions_do_not_run(run, monkeypatch):
    monkeypatch.setattr(process.sandbox, "spawn", _unavailable)

    [first, second] = run("def perform_eval(run):\n return 1", count=2)

    assert first.error == second.error
    assert "cannot run on this installation: no namespaces" in first.error


def _unavailable(*_, **options):
    assert not options.get("allow_unsandboxed")
    raise process.sandbox.SandboxUnavailable("no namespaces")
