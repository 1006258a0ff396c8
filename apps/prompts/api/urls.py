"""API routes of prompt repositories."""

from apps.prompts.api import commits, directories, repositories, webhooks

# Literal paths before parameters: `repos/tags` before `repos/<owner>/<repo>`.
urlpatterns = [*repositories.routes, *commits.routes, *directories.routes, *webhooks.routes]
