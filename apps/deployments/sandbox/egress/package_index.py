"""Serve a package index of the operator to a build, with the operator's password.

The build sees the index at an address of its own (`LocalIndex.url`). Only pages and files are read:
the method, the path and a few headers of the request are used, nothing else that build code sends.
Addresses of the index in its pages and redirects become the address inside.
"""

from __future__ import annotations

import asyncio
import os
import re
import ssl
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from . import upstream

MAX_PAGE_BYTES = 64 * 1024 * 1024
"""The index of a large project has a few MiB."""
_ANSWER_SECONDS = 60.0
_DEFAULT_PORTS = {"http": 80, "https": 443}
_REQUEST_HEADERS = frozenset(
    (
        *(b"accept", b"cache-control", b"if-match", b"if-modified-since", b"if-none-match"),
        *(b"if-range", b"if-unmodified-since", b"range", b"user-agent"),
    )
)
_BODY_HEADERS = (b"accept-ranges", b"content-length", b"transfer-encoding")
_REMOVED_HEADERS = (b"connection", b"keep-alive", b"set-cookie", b"www-authenticate")
_PAGE = re.compile(rb"text/html|application/(?:[\w.]+\+)?(?:json|html)", re.IGNORECASE)
# CA bundles by the variables that pip, uv and requests read.
_CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT")


class IndexFailed(Exception):
    """The index did not answer; the text is for the author of the build."""


_FAILURES = (OSError, EOFError, TimeoutError, ValueError, LookupError, asyncio.LimitOverrunError)


@dataclass(frozen=True, slots=True)
class Index:
    """A package index, and what stands for it inside."""

    url: str
    origin: str
    authorization: str

    @property
    def parts(self) -> SplitResult:
        return urlsplit(self.origin)

    @property
    def address(self) -> tuple[str, int]:
        parts = self.parts
        return parts.hostname or "", parts.port or _DEFAULT_PORTS[parts.scheme]

    def rewrite(self, text: bytes) -> bytes:
        """Replace the addresses of the index; those of other servers remain."""
        host, port = self.address
        is_default = port == _DEFAULT_PORTS[self.parts.scheme]
        name = f"[{host}]" if ":" in host else host
        suffix = f"(?::{port})?" if is_default else f":{port}"
        pattern = rf"{self.parts.scheme}://(?:[^\s/\"'<>@]*@)?{re.escape(name)}{suffix}(?![\w.:@-])"
        return re.sub(pattern.encode(), self.url.encode(), text, flags=re.IGNORECASE)


@cache
def certificates() -> ssl.SSLContext:
    """Return the trusted certificates. The first call must be able to read the operator's files."""
    context = ssl.create_default_context()
    for name in _CA_VARIABLES:
        path = Path(os.environ.get(name) or os.devnull)
        if path.is_file() and path.stat().st_size:
            context.load_verify_locations(cafile=path)
    return context


async def respond(index: Index, head: bytes, writer: asyncio.StreamWriter) -> None:
    """Answer one request, whose head is that of plain HTTP; the caller closes the connection."""
    request = _build_request(index, head)
    reader, outside = await _connect(index)
    try:
        outside.write(request)
        async with asyncio.timeout(_ANSWER_SECONDS):
            answer, page = await _read_answer(index, reader, is_get=request.startswith(b"GET "))
        writer.write(answer)
        if page is None:
            await _copy(reader, writer)
        else:
            writer.write(page)
            await writer.drain()
    except _FAILURES as error:
        raise IndexFailed(f"The package index failed: {type(error).__name__}.") from None
    finally:
        outside.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await asyncio.wait_for(reader.read(65_536), _ANSWER_SECONDS):
            writer.write(data)
            await writer.drain()
    except _FAILURES:
        writer.transport.abort()  # the client detects that the file is not complete


async def _read_answer(
    index: Index, reader: asyncio.StreamReader, *, is_get: bool
) -> tuple[bytes, bytes | None]:
    """Return the head, and the body of a page; a file is read by the caller."""
    answer = await reader.readuntil(b"\r\n\r\n")
    status_line, *fields = answer[:-4].split(b"\r\n")
    headers = [(name.strip().lower(), value.strip()) for name, _, value in _split(fields)]
    kept = [
        (name, index.rewrite(value) if name in (b"location", b"link") else value)
        for name, value in headers
        if name not in _REMOVED_HEADERS
    ]
    values = dict(headers)
    is_page = (
        is_get
        and status_line.split(b" ")[1] == b"200"
        and b"content-encoding" not in values
        and _PAGE.match(values.get(b"content-type", b"")) is not None
    )
    if not is_page:
        return _encode_head(status_line, kept), None
    page = index.rewrite(await _read_page(reader, values))
    kept = [header for header in kept if header[0] not in _BODY_HEADERS]
    kept.append((b"content-length", str(len(page)).encode()))
    return _encode_head(status_line, kept), page


def _split(fields: list[bytes]) -> list[tuple[bytes, bytes, bytes]]:
    return [field.partition(b":") for field in fields]


def _encode_head(status_line: bytes, headers: list[tuple[bytes, bytes]]) -> bytes:
    lines = [status_line, *(b"%b: %b" % header for header in headers), b"connection: close"]
    return b"\r\n".join([*lines, b"", b""])


def _build_request(index: Index, head: bytes) -> bytes:
    request_line, *fields = head[:-4].split(b"\r\n")
    method, path, _ = request_line.split(b" ")
    if method not in (b"GET", b"HEAD"):
        raise IndexFailed("The package index is read-only.")
    kept = [
        b"%b: %b" % (name.strip(), value.strip())
        for name, _, value in _split(fields)
        if name.strip().lower() in _REQUEST_HEADERS
    ]
    lines = [
        b"%b %b HTTP/1.1" % (method, path),
        f"Host: {index.parts.netloc}".encode(),
        f"Authorization: {index.authorization}".encode(),
        b"Accept-Encoding: identity",
        *kept,
        b"Connection: close",
    ]
    return b"\r\n".join([*lines, b"", b""])


async def _connect(index: Index) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = index.address
    context = certificates() if index.parts.scheme == "https" else None
    operator_proxy = upstream.find(host)
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            if operator_proxy is None:
                return await asyncio.open_connection(host, port, ssl=context)
            reader, writer = await upstream.connect(operator_proxy, host, port)
            if context is not None:
                await writer.start_tls(context, server_hostname=host)
            return reader, writer
    except (OSError, TimeoutError, upstream.UpstreamFailed) as error:
        reason = error.reason if isinstance(error, ssl.SSLError) else type(error).__name__
        raise IndexFailed(f"No connection to the package index {host}: {reason}.") from None


async def _read_page(reader: asyncio.StreamReader, headers: dict[bytes, bytes]) -> bytes:
    if headers.get(b"transfer-encoding", b"").lower() == b"chunked":
        pieces = []
        size = 0
        while length := int((await reader.readuntil(b"\n")).split(b";")[0], 16):
            size += length
            _check_size(size)
            pieces.append(await reader.readexactly(length))
            await reader.readexactly(2)
        return b"".join(pieces)
    if b"content-length" in headers:
        length = int(headers[b"content-length"])
        _check_size(length)
        return await reader.readexactly(length)
    body = bytearray()
    while data := await reader.read(65_536):
        body += data
        _check_size(len(body))
    return bytes(body)


def _check_size(size: int) -> None:
    if not 0 <= size <= MAX_PAGE_BYTES:
        raise IndexFailed(f"A page of the package index exceeds {MAX_PAGE_BYTES} bytes.")
