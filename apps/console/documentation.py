"""The documentation for programs and coding agents, served by the installation as Markdown.

Public: the pages are those of the repository, with the address of this installation in them.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_GET

from apps.core import errors

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
PLACEHOLDER = "https://slipway.example"
"""The address of the installation in the pages of the repository."""
PAGES = {
    "tracing": "Send traces: environment, Python, JavaScript, OpenTelemetry; send to two places",
    "troubleshooting": "No trace arrived: what to check, in order",
    "query-language": "Find runs in the lists",
    "filter-language": "Filters of the API, complete",
    "evaluators": "Score runs: judges and functions",
    "langgraph-json": "Deploy: what langgraph.json may contain",
    "errors": "Error codes of the API",
    "limits": "Sizes, rates and counts",
    "compatibility": "Which clients and versions are tested",
}
"""The served pages; the others are for operators."""
_CACHE_SECONDS = 300


@require_GET
def llms_txt(request: HttpRequest) -> HttpResponse:
    """The overview for language models (llmstxt.org): what this is, and links to the pages."""
    lines = [
        "# Slipway",
        "",
        "> Traces, evaluates, deploys and serves AI agents. The tracing server speaks the protocol",
        "> of LangSmith: the `langsmith` packages of Python and JavaScript work unchanged. It also",
        "> takes OpenTelemetry. Deployed agents answer `langgraph-sdk`, A2A and MCP.",
        "",
        f"- API: {settings.BASE_URL}/api/v1, with the header `x-api-key`",
        f"- OpenAPI: {settings.BASE_URL}/openapi.json",
        f"- Skill for coding agents: {settings.BASE_URL}/SKILL.md",
        "",
        "## Documentation",
        "",
        *(f"- [{about}]({settings.BASE_URL}/docs/{name}.md)" for name, about in PAGES.items()),
        "",
    ]
    return _markdown("\n".join(lines), content_type="text/plain")


@require_GET
def skill(request: HttpRequest) -> HttpResponse:
    """The skill with which a coding agent instruments, deploys and reads traces."""
    return _markdown(_read_page("skill"))


@require_GET
def index(request: HttpRequest) -> HttpResponse:
    return redirect("llms-txt")


@require_GET
def page(request: HttpRequest, name: str) -> HttpResponse:
    """A page of the documentation; 404 for any other file."""
    if name not in PAGES:
        raise errors.NotFound("No such page of the documentation.")
    return _markdown(_read_page(name))


@lru_cache(maxsize=len(PAGES) + 1)
def _read_file(name: str) -> str:
    return (DOCS / f"{name}.md").read_text()


def _read_page(name: str) -> str:
    return _read_file(name).replace(PLACEHOLDER, settings.BASE_URL)


def _markdown(text: str, *, content_type: str = "text/markdown") -> HttpResponse:
    response = HttpResponse(text, content_type=f"{content_type}; charset=utf-8")
    response["Cache-Control"] = f"public, max-age={_CACHE_SECONDS}"
    return response
