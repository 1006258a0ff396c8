"""Attachments for holders of a signed address, without any other credential."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core import signing
from django.http import FileResponse, HttpRequest, HttpResponse
from django.urls import path
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from apps.core import objects
from apps.core.http.middleware import error_response
from apps.trace_store import Attachment
from apps.tracing import errors

_SALT = "tracing.attachment"
LIFE_SECONDS = 3600
# Shown by a browser as they are; anything else could run as a page of this server.
_SHOWN = ("image/png", "image/jpeg", "image/gif", "image/webp", "audio/", "video/", "text/plain")


def signed_url(attachment: Attachment) -> str:
    """An absolute address that gives out the attachment for an hour."""
    return signed_file_url(attachment.path, attachment.mime_type, attachment.name)


def signed_file_url(object_path: str, mime_type: str, name: str) -> str:
    """An absolute address that gives out an object for an hour, under that name."""
    said = [object_path, mime_type, name]
    token = signing.dumps(said, salt=_SALT, compress=True)
    return f"{settings.BASE_URL}/public/download?{urlencode({'token': token})}"


@require_safe
def download(request: HttpRequest) -> HttpResponse | FileResponse:
    """The bytes with the type they were sent with; 403 when the signature is wrong or too old."""
    try:
        said: Any = signing.loads(request.GET.get("token", ""), salt=_SALT, max_age=LIFE_SECONDS)
        path, mime_type, name = said
    except (signing.BadSignature, ValueError):
        return error_response(request, errors.DownloadExpired())
    return file_response(request, path, mime_type, name)


def file_response(
    request: HttpRequest, path: str, mime_type: str, name: str
) -> HttpResponse | FileResponse:
    """An attachment as a download that cannot act as a page of this server."""
    try:
        file = objects.reader(path)
    except FileNotFoundError:
        return error_response(request, errors.RunNotFound("The attachment is not there any more."))
    response = FileResponse(
        file,
        as_attachment=not mime_type.startswith(_SHOWN),
        filename=name,
        content_type=_one_line(mime_type),
    )
    response["Content-Security-Policy"] = "sandbox; default-src 'none'"
    response["Cache-Control"] = "private, max-age=3600"
    return response


def _one_line(mime_type: str) -> str:
    return "".join(c for c in mime_type if c.isprintable())[:200] or "application/octet-stream"


routes = [path("public/download", download, name="attachment-download")]
