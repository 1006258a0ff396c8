"""Attachment downloads by signed URL, without other authentication."""

from __future__ import annotations

import re
from typing import Any

from django.conf import settings
from django.core import signing
from django.http import FileResponse, HttpRequest, HttpResponse
from django.urls import path
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from apps.core import object_storage
from apps.core.http.middleware import error_response
from apps.trace_store import Attachment
from apps.tracing import errors

_SALT = "tracing.attachment"
_CODE_TYPES = re.compile(r"(?:java|ecma|j|live)script|text/css", re.IGNORECASE)
URL_SECONDS = 3600
# Types that browsers may render. Other types could execute as a page of this origin.
_INLINE_TYPES = (
    "image/png",
    "image/jpeg",
    "image/gif",
    "image/webp",
    "audio/",
    "video/",
    "text/plain",
)


def signed_url(attachment: Attachment) -> str:
    """Return an absolute URL that serves the attachment for `URL_SECONDS`."""
    return signed_file_url(attachment.path, attachment.mime_type, attachment.name)


def signed_file_url(object_path: str, mime_type: str, name: str) -> str:
    """Return an absolute URL that serves a stored object under `name` for `URL_SECONDS`."""
    data = [object_path, mime_type, name]
    token = signing.dumps(data, salt=_SALT, compress=True)
    return f"{settings.API_BASE_URL}/public/download?{urlencode({'token': token})}"


@require_safe
def download(request: HttpRequest) -> HttpResponse | FileResponse:
    """Serve the file with its recorded type; 403 if the signature is invalid or expired."""
    try:
        data: Any = signing.loads(request.GET.get("token", ""), salt=_SALT, max_age=URL_SECONDS)
        path, mime_type, name = data
    except (signing.BadSignature, ValueError):
        return error_response(request, errors.DownloadExpired())
    return file_response(request, path, mime_type, name)


def file_response(
    request: HttpRequest, path: str, mime_type: str, name: str
) -> HttpResponse | FileResponse:
    """Return a file response whose content cannot execute as a page of this origin."""
    try:
        file = object_storage.reader(path)
    except FileNotFoundError:
        return error_response(request, errors.RunNotFound("The attachment no longer exists."))
    response = FileResponse(
        file,
        as_attachment=not mime_type.startswith(_INLINE_TYPES),
        filename=name,
        content_type=_safe_mime_type(mime_type),
    )
    response["Content-Security-Policy"] = "sandbox; default-src 'none'"
    response["Cache-Control"] = "private, max-age=3600"
    return response


def _safe_mime_type(mime_type: str) -> str:
    """Return the type, or `text/plain` for types that a page of this origin could load as code."""
    if _CODE_TYPES.search(mime_type):
        return "text/plain; charset=utf-8"
    return "".join(c for c in mime_type if c.isprintable())[:200] or "application/octet-stream"


routes = [path("public/download", download, name="attachment-download")]
