"""`make bench-limits`: CPU time of authentication and rate limits per request.

The web handler runs in this process, so its time is that of this process; the time of Redis is
from its INFO command. Rounds with limits on and off alternate, so that a busy machine affects both
alike; the best round counts.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.gate import run_folder
from tests.installation import Installation

ROUNDS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=3000, help="of each round")
    options = parser.parse_args()
    with run_folder.use() as folder:
        services = Installation(folder / "x")
        services.start("--services-only")
        try:
            services.wait_until_output_contains("Ready")
            _measure(_prepare(folder / "x"), options.requests)
        finally:
            services.stop()


def _prepare(data_dir: Path) -> str:
    """Set up Django on the services of the folder and return an API key."""
    os.environ.update(
        DATA_DIR=str(data_dir),
        DJANGO_SETTINGS_MODULE="config.settings",
        RATE_LIMIT_FACTOR="1000000",
    )
    for name in ("DATABASE_URL", "REDIS_URL"):
        os.environ.pop(name, None)
    (data_dir / "static").mkdir(exist_ok=True)
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)
    output = io.StringIO()
    call_command("bootstrap", organization="B", email="b@localhost", as_json=True, stdout=output)
    key: str = json.loads(output.getvalue())["api_key"]
    return key


def _measure(key: str, requests: int) -> None:
    import redis
    from django.conf import settings
    from django.core.wsgi import get_wsgi_application

    from apps.api_keys.services import get_key_info
    from apps.rate_limits.enforcement import check
    from apps.rate_limits.identity import identify
    from apps.rate_limits.row_matching import counted_path, is_counted, row_for
    from apps.rate_limits.table import IdentityKind

    application, client = get_wsgi_application(), redis.Redis.from_url(settings.REDIS_URL)
    headers = {"X-Api-Key": key}

    def make_request_function(method: str, path: str) -> Callable[[], None]:
        return lambda: _send_request(application, method, path, key)

    def check_limit() -> None:
        check(method="GET", path="/sessions", headers=headers, remote="10.0.0.1", user=_no_user)

    def match_row() -> None:
        is_counted("/sessions")
        row_for("GET", counted_path("/sessions"), IdentityKind.KEY)

    steps: dict[str, Callable[[], object]] = {
        "look up the key (hash, memory)": lambda: get_key_info(secret=key),
        "identify the caller": lambda: identify(headers, "10.0.0.1", _no_user),
        "find the row": match_row,
        "whole check with counting": check_limit,
    }
    print("CPU of the web process, microseconds, best of", ROUNDS)
    for name, step in steps.items():
        best = min(_measure_cost(step, requests) for _ in range(ROUNDS))
        print(f"  {name:36} {best.cpu:7.1f}, {best.kernel:.1f} in the kernel")
    redis_cpu_before = _redis_cpu(client)
    for _ in range(requests):
        check_limit()
    redis_microseconds = (_redis_cpu(client) - redis_cpu_before) / requests * 1e6
    print(f"  {'(Redis itself, for a count)':36} {redis_microseconds:7.1f}")

    print("\nWhole requests through Django's handler, microseconds of CPU")
    print(
        f"  {'request':20} {'limits on':>10} {'off':>8} {'limit':>7} {'share':>6}"
        f" {'kernel':>8} {'waits':>6}"
    )
    for method, path in (("GET", "/info"), ("POST", "/auth"), ("GET", "/sessions")):
        request = make_request_function(method, path)
        costs_on, costs_off = [], []
        for _ in range(ROUNDS):
            for factor, costs in ((1e6, costs_on), (0.0, costs_off)):
                settings.RATE_LIMIT_FACTOR = factor
                costs.append(_measure_cost(request, requests))
        cost_on, cost_off = min(costs_on), min(costs_off)
        limit_cpu = cost_on.cpu - cost_off.cpu
        print(
            f"  {method + ' ' + path:20} {cost_on.cpu:10.1f} {cost_off.cpu:8.1f} {limit_cpu:7.1f}"
            f" {limit_cpu / cost_on.cpu:6.1%} {cost_on.kernel - cost_off.kernel:8.1f}"
            f" {cost_on.waits - cost_off.waits:6.1f}"
        )


def _no_user() -> None:
    return None


class CallCost(NamedTuple):
    """Average cost of a call: microseconds of CPU, of these in the kernel, and context switches."""

    cpu: float
    kernel: float
    waits: float


def _measure_cost(function: Callable[[], object], times: int) -> CallCost:
    function()
    before = resource.getrusage(resource.RUSAGE_SELF)
    for _ in range(times):
        function()
    after = resource.getrusage(resource.RUSAGE_SELF)
    user, kernel = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    waits = after.ru_nvcsw - before.ru_nvcsw
    return CallCost((user + kernel) / times * 1e6, kernel / times * 1e6, waits / times)


def _redis_cpu(client: Any) -> float:
    cpu_info = client.info("cpu")
    return float(cpu_info["used_cpu_sys"]) + float(cpu_info["used_cpu_user"])


def _send_request(application: Any, method: str, path: str, key: str) -> None:
    environ = {
        "REQUEST_METHOD": method,
        "SCRIPT_NAME": "",
        "PATH_INFO": path,
        "QUERY_STRING": "",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "8000",
        "REMOTE_ADDR": "10.0.0.1",
        "HTTP_X_API_KEY": key,
        "HTTP_HOST": "localhost",
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(),
        "CONTENT_LENGTH": "",
    }
    statuses: list[str] = []
    response = application(environ, lambda status, _headers: statuses.append(status))
    response.close()
    if not statuses[0].startswith("200"):
        raise SystemExit(f"{method} {path} was answered {statuses[0]}: {response.content!r}")


if __name__ == "__main__":
    main()
