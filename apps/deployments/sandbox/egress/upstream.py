"""The operator's own proxy, named by the platform's environment: build steps connect through it."""

from __future__ import annotations

import asyncio
import base64
import urllib.request
from urllib.parse import SplitResult, unquote, urlsplit

_SECONDS = 15.0


class UpstreamFailed(Exception):
    """The operator's proxy did not connect."""


def find(host: str) -> SplitResult | None:
    """Return the proxy for the host; None for a direct connection."""
    if urllib.request.proxy_bypass(host):
        return None
    proxies = urllib.request.getproxies()
    url = proxies.get("https") or proxies.get("all") or proxies.get("http")
    if not url:
        return None
    return urlsplit(url if "://" in url else f"http://{url}")


async def connect(
    proxy: SplitResult, host: str, port: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the host through the proxy. Raises `UpstreamFailed`."""
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [f"CONNECT {authority} HTTP/1.1", f"Host: {authority}"]
    if proxy.username is not None:
        pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
        lines.append(f"Proxy-Authorization: Basic {base64.b64encode(pair.encode()).decode()}")
    try:
        async with asyncio.timeout(_SECONDS):
            reader, writer = await asyncio.open_connection(
                proxy.hostname, proxy.port or 80, ssl=proxy.scheme == "https" or None
            )
            writer.write("\r\n".join([*lines, "", ""]).encode())
            status = (await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)[1]
    except (OSError, EOFError, IndexError, ValueError, asyncio.LimitOverrunError) as error:
        raise UpstreamFailed(f"The operator's proxy failed: {type(error).__name__}.") from None
    if status != b"200":
        writer.close()
        raise UpstreamFailed(f"The operator's proxy answered {status.decode('latin-1')}.")
    return reader, writer
