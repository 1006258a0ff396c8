from django.http import HttpResponse
from django.test import RequestFactory

from apps.core.http.middleware import PageGZipMiddleware

REQUEST = RequestFactory().get("/", headers={"Accept-Encoding": "gzip"})


def test_pages_are_compressed_and_api_responses_are_not():
    page = HttpResponse("word " * 1000, content_type="text/html; charset=utf-8")
    answer = HttpResponse("word " * 1000, content_type="application/json")

    page = PageGZipMiddleware(lambda _: page)(REQUEST)
    answer = PageGZipMiddleware(lambda _: answer)(REQUEST)

    assert page.headers["Content-Encoding"] == "gzip"
    assert len(page.content) < 1000
    assert "Content-Encoding" not in answer.headers
    assert len(answer.content) == 5000


def test_every_response_has_a_request_id(client):
    with_id = client.get("/healthz", headers={"X-Request-ID": "abc-1"})
    with_invalid_id = client.get("/healthz", headers={"X-Request-ID": "no good\n"})

    assert with_id.headers["X-Request-ID"] == "abc-1"
    assert with_invalid_id.headers["X-Request-ID"] not in {"", "no good\n"}
    assert with_id.json() == {"ok": True}
