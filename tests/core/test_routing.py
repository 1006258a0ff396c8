"""The segment trie of routes."""

from __future__ import annotations

import pytest
from django.urls import path

from apps.core.http.routing import Routes


def view(name):
    def answer(request):
        return name

    answer.__name__ = name
    return answer


ROUTES = Routes(
    [
        path("a/<slug:slug>/runs/<str:run_id>", view("read"), {"methods": ("GET",)}),
        path("a/<slug:slug>/runs/<str:run_id>", view("delete"), {"methods": ("DELETE",)}),
        path("a/<slug:slug>/runs/wait", view("wait"), {"methods": ("POST",)}),
        path("a/<slug:slug>/runs/crons/<str:cron_id>", view("cron"), {"methods": ("GET",)}),
        path("a/<slug:slug>/runs/<str:run_id>/join", view("join"), {"methods": ("GET",)}),
        path("a/<slug:slug>/<uuid:key>", view("key"), {"methods": ("GET",)}),
        path("a/<slug:slug>/<int:number>", view("number"), {"methods": ("GET", "POST")}),
    ]
)


@pytest.mark.parametrize(
    ("method", "address", "name", "kwargs"),
    [
        ("GET", "a/x/runs/1", "read", {"slug": "x", "run_id": "1"}),
        ("DELETE", "a/x/runs/1", "delete", {"slug": "x", "run_id": "1"}),
        ("POST", "a/x/runs/wait", "wait", {"slug": "x"}),
        ("GET", "a/x/runs/wait", "read", {"slug": "x", "run_id": "wait"}),
        ("GET", "a/x/runs/crons/join", "cron", {"slug": "x", "cron_id": "join"}),
        ("GET", "a/x/runs/c/join", "join", {"slug": "x", "run_id": "c"}),
        ("POST", "a/x/12", "number", {"slug": "x", "number": 12}),
    ],
)
def test_path_finds_its_route(method, address, name, kwargs):
    match = ROUTES.find(address, method)

    assert match is not None
    assert (match.route.callback.__name__, match.kwargs) == (name, kwargs)


@pytest.mark.parametrize(
    ("method", "address"),
    [
        ("PUT", "a/x/runs/1"),
        ("GET", "a/x!/runs/1"),
        ("GET", "a/x/runs/1/"),
        ("GET", "a/x/runs//join"),
        ("GET", "a/x/one"),
        ("GET", ""),
    ],
)
def test_unknown_path_or_method_finds_no_route(method, address):
    assert ROUTES.find(address, method) is None


def test_mixed_segment_is_rejected():
    with pytest.raises(ValueError, match="mixed segment"):
        Routes([path("a/<str:name>.json", view("x"), {"methods": ("GET",)})])
