"""A process of the sandbox that calls one evaluator's function for run after run."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from apps.core.json import dumps, is_too_deep, loads, storable
from apps.deployments import interpreters, sandbox
from apps.deployments.sandbox import MIB, Limits, Network, Policy, SandboxedProcess
from apps.evaluators.code.program import MAX_REPLY_BYTES

EVALUATION_SECONDS = 20.0
"""Of the clock, for one run."""
LIMITS = Limits(
    memory_bytes=512 * MIB,
    processes=32,
    open_files=64,
    file_bytes=16 * MIB,
    temporary_bytes=32 * MIB,
    cpu_seconds=120,
    is_background=True,
)
_PROGRAM = Path(__file__).with_name("program.py")
_EXIT_SECONDS = 2.0
_MAX_TEXT = 10_000


class CodeStopped(Exception):
    """The process ended instead of returning a result; the text is for the code's author."""


@dataclass(frozen=True, slots=True)
class CodeReply:
    """What the function returned, not checked; or why it returned nothing."""

    result: Any = None
    error: str = ""
    output: str = ""
    """The first characters that the function printed."""


class CodeProcess:
    """One process, owned by its creator: `close` kills the tree."""

    def __init__(
        self,
        process: SandboxedProcess,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process, self._reader, self._writer = process, reader, writer

    @classmethod
    async def start(cls, code: str, uid: int | None) -> Self:
        """Start a process for this code. Raises `SandboxError` and `OSError`."""
        start = asyncio.get_running_loop().run_in_executor(None, _spawn, uid)
        try:
            process, link = await asyncio.shield(start)
        except asyncio.CancelledError:
            start.add_done_callback(_discard)
            raise
        try:
            reader, writer = await asyncio.open_connection(sock=link)
        except BaseException:
            process.kill()
            link.close()
            raise
        started = cls(process, reader, writer)
        started._send(dumps({"code": code}))
        return started

    async def evaluate(self, subject: bytes) -> CodeReply:
        """Call the function with `{"run": ..., "example": ...}`.

        Raises `CodeStopped`; the process is of no use then.
        """
        try:
            async with asyncio.timeout(EVALUATION_SECONDS):
                self._send(subject)
                await self._writer.drain()
                size = int.from_bytes(await self._reader.readexactly(4))
                if size > MAX_REPLY_BYTES:
                    raise CodeStopped(f"The result has more than {MAX_REPLY_BYTES:,} bytes.")
                content = await self._reader.readexactly(size)
        except TimeoutError:
            raise CodeStopped(
                f"The code took longer than {EVALUATION_SECONDS:.0f} seconds."
            ) from None
        except (asyncio.IncompleteReadError, OSError):
            raise CodeStopped(await self._describe_exit()) from None
        return _read_reply(content)

    def _send(self, content: bytes) -> None:
        self._writer.write(len(content).to_bytes(4))
        self._writer.write(content)

    async def _describe_exit(self) -> str:
        deadline = asyncio.get_running_loop().time() + _EXIT_SECONDS
        while self._process.poll() is None and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.01)
        if reason := self._process.stopped_because:
            return f"The code was stopped because {reason}."
        status = self._process.returncode
        if status is None:
            return "The code closed its connection to the platform."
        return f"The code ended its process, with status {status}."

    def close(self) -> None:
        """Kill the process tree. Safe to repeat."""
        self._process.kill()
        self._writer.transport.abort()


def _spawn(uid: int | None) -> tuple[SandboxedProcess, socket.socket]:
    python = interpreters.find_interpreter(None)
    platform_end, code_end = socket.socketpair()
    policy = Policy(
        cwd=sandbox.TEMPORARY,
        uid=uid,
        python=python,
        owner="evaluators",  # of all organizations: there are few, which take turns
        hostname="evaluator",
        network=Network.NONE,
        limits=LIMITS,
    )
    command = [str(python), "-I", "-S", "-c", _PROGRAM.read_text(), str(code_end.fileno())]
    try:
        # Never without a sandbox: anyone who may write an evaluator would be the platform's user.
        process = sandbox.spawn(
            policy,
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[code_end.fileno()],
        )
    except BaseException:
        platform_end.close()
        raise
    finally:
        code_end.close()
    return process, platform_end


def _discard(start: asyncio.Future[tuple[SandboxedProcess, socket.socket]]) -> None:
    with contextlib.suppress(Exception):
        process, link = start.result()
        process.kill()
        link.close()


def _read_reply(content: bytes) -> CodeReply:
    """Raises `CodeStopped` for a reply that the program would not write: the code wrote it."""
    try:
        reply = loads(storable(content))
    except ValueError:
        raise CodeStopped("The result is not JSON.") from None
    if not isinstance(reply, dict) or is_too_deep(reply, content):
        raise CodeStopped("The result is not JSON of at most 200 levels.")
    error, output = reply.get("error", ""), reply.get("output", "")
    if not isinstance(error, str) or not isinstance(output, str):
        raise CodeStopped("The code wrote to its connection to the platform.")
    return CodeReply(reply.get("result"), error[:_MAX_TEXT], output[:_MAX_TEXT])
