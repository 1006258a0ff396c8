"""`make bench-limits`: what authentication and the limit cost a request, in CPU.

The web process's own handler answers in this process, so its time is this process's; the time of
Redis is what Redis says it used. A round is measured with the limits on and off in turn, so that a
busy machine troubles both alike; the best round counts.
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
            services.wait_until_said("Ready")
            _measure(_prepare(folder / "x"), options.requests)
        finally:
            services.stop()


def _prepare(data_dir: Path) -> str:
    """Django on the services of that folder; an API key."""
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
    said = io.StringIO()
    call_command("bootstrap", organization="B", email="b@localhost", as_json=True, stdout=said)
    key: str = json.loads(said.getvalue())["api_key"]
    return key


def _measure(key: str, requests: int) -> None:
    import redis
    from django.conf import settings
    from django.core.wsgi import get_wsgi_application

    from apps.api_keys.services import get_key_info
    from apps.rate_limits.checks import check
    from apps.rate_limits.identity import identify
    from apps.rate_limits.row_matching import counted_path, is_counted, row_for
    from apps.rate_limits.table import IdentityKind

    application, client = get_wsgi_application(), redis.Redis.from_url(settings.REDIS_URL)
    headers = {"X-Api-Key": key}

    def asking(method: str, path: str) -> Callable[[], None]:
        return lambda: _ask(application, method, path, key)

    def checking() -> None:
        check(method="GET", path="/sessions", headers=headers, remote="10.0.0.1", user=_nobody)

    def matching() -> None:
        is_counted("/sessions")
        row_for("GET", counted_path("/sessions"), IdentityKind.KEY)

    pieces: dict[str, Callable[[], object]] = {
        "looking the key up (hash, memory)": lambda: get_key_info(secret=key),
        "finding whom to count": lambda: identify(headers, "10.0.0.1", _nobody),
        "finding the row": matching,
        "all of it, counting included": checking,
    }
    print("CPU of the web process, microseconds, best of", ROUNDS)
    for name, piece in pieces.items():
        best = min(_spent(piece, requests) for _ in range(ROUNDS))
        print(f"  {name:36} {best.cpu:7.1f}, {best.kernel:.1f} in the kernel")
    used = _redis_cpu(client)
    for _ in range(requests):
        checking()
    of_redis = (_redis_cpu(client) - used) / requests * 1e6
    print(f"  {'(Redis itself, for a count)':36} {of_redis:7.1f}")

    print("\nWhole requests through Django's handler, microseconds of CPU")
    print(
        f"  {'request':20} {'limits on':>10} {'off':>8} {'limit':>7} {'share':>6}"
        f" {'kernel':>8} {'waits':>6}"
    )
    for method, path in (("GET", "/info"), ("POST", "/auth"), ("GET", "/sessions")):
        ask = asking(method, path)
        on, off = [], []
        for _ in range(ROUNDS):
            for factor, found in ((1e6, on), (0.0, off)):
                settings.RATE_LIMIT_FACTOR = factor
                found.append(_spent(ask, requests))
        with_it, without = min(on), min(off)
        cost = with_it.cpu - without.cpu
        print(
            f"  {method + ' ' + path:20} {with_it.cpu:10.1f} {without.cpu:8.1f} {cost:7.1f}"
            f" {cost / with_it.cpu:6.1%} {with_it.kernel - without.kernel:8.1f}"
            f" {with_it.waits - without.waits:6.1f}"
        )


def _nobody() -> None:
    return None


class Spent(NamedTuple):
    """What a call costs on average: microseconds of CPU in all and in the kernel; its waits."""

    cpu: float
    kernel: float
    waits: float


def _spent(piece: Callable[[], object], times: int) -> Spent:
    piece()
    before = resource.getrusage(resource.RUSAGE_SELF)
    for _ in range(times):
        piece()
    after = resource.getrusage(resource.RUSAGE_SELF)
    user, kernel = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    waits = after.ru_nvcsw - before.ru_nvcsw
    return Spent((user + kernel) / times * 1e6, kernel / times * 1e6, waits / times)


def _redis_cpu(client: Any) -> float:
    said = client.info("cpu")
    return float(said["used_cpu_sys"]) + float(said["used_cpu_user"])


def _ask(application: Any, method: str, path: str, key: str) -> None:
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
