"""Which sources of code this platform builds from, and what it tells who asks for another."""

from __future__ import annotations

from apps.deployments import errors
from apps.deployments.models import Source

_REFUSALS = {
    "internal_source": (
        "Uploads of source archives are not offered yet. Deploy from a Git repository instead:"
        " source github with source_config.repo_url."
    ),
    "internal_docker": (
        "This platform builds agents itself and has no image registry: add --remote to"
        " `langgraph deploy`, or deploy from a Git repository."
    ),
    "external_docker": (
        "This platform builds agents itself and runs no images: deploy from a Git repository."
    ),
    "internal_template": "This platform has no templates: deploy from a Git repository.",
}


def check(source: str | None) -> None:
    """Refuse a source that is not Git, with advice for the person behind the client."""
    if source is None or source == Source.GIT:
        return
    raise errors.SourceNotOffered(_REFUSALS.get(source, f"The source {source!r} is not known."))
