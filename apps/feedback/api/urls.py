"""API routes of feedback."""

from apps.feedback.api import configs, formulas, tokens, views

# Literal paths before parameters: `feedback/tokens` before `feedback/<id>`.
urlpatterns = [*tokens.routes, *formulas.routes, *configs.routes, *views.routes]
