from django.urls import path

from apps.prompts import views, webhook_views

_PROMPTS = "o/<uuid:workspace_id>/prompts"
_PROMPT = f"{_PROMPTS}/p/<str:repo>"
_WEBHOOKS = "o/<uuid:workspace_id>/settings/prompt-webhooks"
_WEBHOOK = f"{_WEBHOOKS}/<uuid:webhook_id>"
urlpatterns = [
    path(_PROMPTS, views.prompt_list, name="prompt-list"),
    path(f"{_PROMPTS}/new", views.prompt_new, name="prompt-new"),
    path(_PROMPT, views.prompt_detail, name="prompt-detail"),
    path(f"{_PROMPT}/edit", views.prompt_edit, name="prompt-edit"),
    path(f"{_PROMPT}/commits", views.prompt_commits, name="prompt-commits"),
    path(f"{_PROMPT}/commits/<str:commit>/diff", views.prompt_diff, name="prompt-diff"),
    path(f"{_PROMPT}/commits/<str:commit>/tags", views.prompt_tag, name="prompt-tag"),
    path(f"{_PROMPT}/tags/<str:tag_name>", views.prompt_tag_history, name="prompt-tag-history"),
    path(f"{_PROMPT}/runs", views.prompt_runs, name="prompt-runs"),
    path(f"{_PROMPT}/settings", views.prompt_settings, name="prompt-settings"),
    path(f"{_PROMPT}/delete", views.prompt_delete, name="prompt-delete"),
    path(_WEBHOOKS, webhook_views.settings_prompt_webhooks, name="settings-prompt-webhooks"),
    path(_WEBHOOK, webhook_views.settings_prompt_webhook, name="settings-prompt-webhook"),
    path(
        f"{_WEBHOOK}/secret",
        webhook_views.settings_prompt_webhook_secret,
        name="settings-prompt-webhook-secret",
    ),
    path(
        f"{_WEBHOOK}/delete",
        webhook_views.settings_prompt_webhook_delete,
        name="settings-prompt-webhook-delete",
    ),
    path(
        f"{_WEBHOOK}/deliveries/<uuid:delivery_id>/replay",
        webhook_views.settings_prompt_webhook_replay,
        name="settings-prompt-webhook-replay",
    ),
    # Addresses that the public clients print.
    path("prompts/<str:repo>/<str:commit>", views.client_link, name="prompt-client-link"),
    path("context/<str:repo>/<str:commit>", views.client_link, name="context-client-link"),
]
