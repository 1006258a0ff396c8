"""The API page of an agent."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views import View


class DocsView(View):
    """The page that shows an agent's OpenAPI document."""

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        return render(request, "agent_server/docs.html", {"slug": slug})
