"""The functional API: tasks in parallel, a question, and what was returned last time."""

from __future__ import annotations

from langgraph.func import entrypoint, task
from langgraph.types import interrupt


@task
async def square(number: int) -> int:
    return number * number


@entrypoint()
async def graph(order: dict, *, previous: dict | None = None) -> dict:
    squares = [square(number) for number in order["numbers"]]
    total = sum([await result for result in squares])
    if order.get("ask"):
        total += interrupt({"total": total})
    return {"total": total, "before": (previous or {}).get("total", 0)}
