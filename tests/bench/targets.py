"""Targets of the agent benchmark, as ratios to the peers of the same rounds."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple

Report = dict[str, Any]

IN_MEMORY = ("langgraph-dev", "langgraph-jobs100")
DURABLE = ("aegra", "aegra-tuned", "aegra-redis")
ALL = (*IN_MEMORY, *DURABLE)
OURS = "slipway"


class Target(NamedTuple):
    """Our result must be at least (`more`) or at most (`less`) `ratio` times the best peer's."""

    title: str
    result: str
    key: str
    better: Literal["more", "less"]
    peers: tuple[str, ...]
    """Without peers, `ratio` is an absolute value."""
    ratio: float


_ECHO, _CHAIN, _STREAM = "thread_wait_echo_c16", "thread_wait_chain10_c16", "stream_messages_c1"
TARGETS = [
    Target("echo, 16 clients, to in memory", _ECHO, "per_s", "more", IN_MEMORY, 1.2),
    Target("echo, 16 clients, to durable", _ECHO, "per_s", "more", DURABLE, 4.0),
    Target("echo, 1 client: median", "thread_wait_echo_c1", "median_ms", "less", ALL, 0.5),
    Target("chain10, 16 clients", _CHAIN, "per_s", "more", IN_MEMORY, 1.5),
    Target("first stream event, 1 client", _STREAM, "first_event_ms", "less", ALL, 0.7),
    Target("streamed events, 8 clients", "stream_messages_c8", "events_per_s", "more", ALL, 2.0),
    Target("100 sleeps of 1 s: wall", "sleepy100", "wall_s", "less", (), 1.4),
    Target("POST /threads, 1 client", "thread_create_c1", "median_ms", "less", ALL, 1.0),
    Target("POST /threads, 16 clients", "thread_create_c16", "per_s", "more", ALL, 1.0),
    Target("GET state, 1 client", "state_c1", "median_ms", "less", ALL, 1.0),
    Target("GET state, 16 clients", "state_c16", "per_s", "more", ALL, 1.0),
    Target("history, 1 client", "history10_c1", "median_ms", "less", ALL, 1.0),
    Target("history, 16 clients", "history10_c16", "per_s", "more", ALL, 1.0),
    Target("threads/search", "threads_search_c1", "median_ms", "less", ALL, 1.0),
    Target("assistants/search", "assistants_search_c1", "median_ms", "less", ALL, 1.0),
    # The other in-memory peer is idle most of the time: it reaches 17 runs a second.
    Target("CPU per echo run, all processes", _ECHO, "cpu", "less", IN_MEMORY[:1], 1.25),
]


def read_value(report: Report, target: Target) -> float | None:
    """Return the target's value in a report, None when it was not measured."""
    result = report["results"].get(target.result, {})
    if target.key != "cpu":
        measured: float | None = result.get(target.key)
        return measured
    parts = (result.get("cpu") or {}).get("ms_per_call") or {}
    return sum(cost for name, cost in parts.items() if name != "client") or None


def median_value(reports: Iterable[Report], target: Target) -> float | None:
    """Return the median of the target's value over the rounds."""
    values = [
        measured for report in reports if (measured := read_value(report, target)) is not None
    ]
    return statistics.median(values) if values else None


def evaluate_targets(
    reports: dict[str, list[Report]],
) -> Iterator[tuple[Target, str, str, bool | None]]:
    """Yield each target with our value, the ratio to the best peer, and whether it is met."""
    for target in TARGETS:
        ours = median_value(reports.get(OURS, []), target)
        if ours is None:
            continue
        if not target.peers:
            yield target, f"{ours:.4g}", "", ours <= target.ratio
            continue
        peers = {name: median_value(reports.get(name, []), target) for name in target.peers}
        measured = {name: median for name, median in peers.items() if median}
        if not measured:
            yield target, f"{ours:.4g}", "not measured", None
            continue
        best = (max if target.better == "more" else min)(measured, key=measured.__getitem__)
        ratio = ours / measured[best]
        is_met = ratio >= target.ratio if target.better == "more" else ratio <= target.ratio
        yield target, f"{ours:.4g}", f"{ratio:.2f} x {best} ({measured[best]:.4g})", is_met


def format_table(reports: dict[str, list[Report]]) -> str:
    """Return the targets as a Markdown table."""
    lines = ["| | ours | ratio | target | |", "|---|--:|---|--:|---|"]
    for target, ours, ratio, is_met in evaluate_targets(reports):
        sign = ">=" if target.better == "more" else "<="
        word = {True: "met", False: "MISSED", None: "-"}[is_met]
        lines.append(f"| {target.title} | {ours} | {ratio} | {sign} {target.ratio} | {word} |")
    return "\n".join(lines)
