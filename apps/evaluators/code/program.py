"""Calls a user's `perform_eval` for one run after the other. Runs in the sandbox.

    python -I -S -c PROGRAM FD

The platform never imports this module, and this module has nothing of the platform. Messages are
JSON with a length of four bytes in front, both ways: first the code, then runs. The platform trusts
no reply: the code may write to the same socket.
"""

from __future__ import annotations

import inspect
import io
import json
import linecache
import socket
import sys
import traceback
import types
from typing import Any

FILE_NAME = "evaluator.py"
MAX_OUTPUT = 8_000
MAX_ERROR = 8_000
"""Characters."""
MAX_REPLY_BYTES = 1024 * 1024


class Output(io.TextIOBase):
    """Keeps the first characters that are written."""

    def __init__(self) -> None:
        self.text = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if len(self.text) < MAX_OUTPUT:
            self.text += text[: MAX_OUTPUT - len(self.text)]
        return len(text)


def main(fd: int) -> None:
    link = socket.socket(fileno=fd)
    stream = link.makefile("rb")
    code = receive(stream)["code"]
    function, problem = load(code)
    while True:
        message = receive(stream)
        reply = {"error": problem} if problem else call(function, message)
        content = encode(reply)
        if len(content) > MAX_REPLY_BYTES:
            content = encode({"error": f"The result has more than {MAX_REPLY_BYTES:,} bytes."})
        link.sendall(len(content).to_bytes(4, "big") + content)


def encode(reply: dict[str, Any]) -> bytes:
    # Without lone surrogates, which JSON parsers refuse.
    return json.dumps(reply, ensure_ascii=False).encode("utf-8", "replace")


def receive(stream: Any) -> Any:
    size = int.from_bytes(stream.read(4), "big")
    if not size:
        raise SystemExit
    return json.loads(stream.read(size))


def load(code: str) -> tuple[Any, str]:
    """Return the function of the code, or why there is none."""
    module = types.ModuleType("evaluator")
    module.__file__ = FILE_NAME
    sys.modules["evaluator"] = module
    linecache.cache[FILE_NAME] = (len(code), None, code.splitlines(keepends=True), FILE_NAME)
    try:
        exec(compile(code, FILE_NAME, "exec"), module.__dict__)  # noqa: S102  (what the sandbox is for)
        return module.perform_eval, ""
    except BaseException as error:  # noqa: BLE001  (also `SystemExit` of the code)
        return None, describe(error)


def call(function: Any, message: dict[str, Any]) -> dict[str, Any]:
    """Return what `perform_eval` returned as `result`, or `error`; both with the `output`."""
    output = sys.stdout = sys.stderr = Output()
    try:
        arguments = [message["run"], message["example"]][: count_parameters(function)]
        result = function(*arguments)
        if inspect.isawaitable(result):
            import asyncio  # noqa: PLC0415  (takes 50 ms)

            result = asyncio.run(wait(result))
        check(result)
        return {"result": result, "output": output.text}
    except BaseException as error:  # noqa: BLE001  (also `SystemExit` of the code)
        return {"error": describe(error), "output": output.text}


def check(result: Any) -> None:
    try:
        json.dumps(result, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"perform_eval returned what is not JSON: {error}") from None


async def wait(result: Any) -> Any:
    return await result


def count_parameters(function: Any) -> int:
    """Return how many of run and example the function takes by position."""
    kinds = [parameter.kind for parameter in inspect.signature(function).parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return 2
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return min(2, sum(kind in by_position for kind in kinds))


def describe(error: BaseException) -> str:
    """Return the traceback with the frames of the user's code only."""
    described = traceback.TracebackException.from_exception(error)
    current: Any = described
    seen = 0
    while current is not None and seen < 10:
        frames = [frame for frame in current.stack if frame.filename == FILE_NAME]
        current.stack = traceback.StackSummary.from_list(frames) if frames else None
        current, seen = current.__cause__ or current.__context__, seen + 1
    text = "".join(described.format())
    return text if len(text) <= MAX_ERROR else "...\n" + text[-MAX_ERROR:]


if __name__ == "__main__":
    main(int(sys.argv[1]))
