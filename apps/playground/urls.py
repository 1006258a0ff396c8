"""Routes of the playground: the data of its page, and its API."""

from django.urls import path

from apps.playground import views
from apps.playground.api.urls import urlpatterns as api

_PLAYGROUND = "o/<uuid:workspace_id>/playground"
urlpatterns = [
    *api,
    path(f"{_PLAYGROUND}/models", views.models, name="playground-models"),
    path(f"{_PLAYGROUND}/stream", views.stream, name="playground-stream"),
    path(f"{_PLAYGROUND}/messages", views.rendered, name="playground-messages"),
    path(f"{_PLAYGROUND}/tools/call", views.tool_call, name="playground-tool-call"),
    path(f"{_PLAYGROUND}/draft", views.draft, name="playground-draft"),
    path(f"{_PLAYGROUND}/shares", views.shares, name="playground-shares"),
    path(f"{_PLAYGROUND}/shares/<uuid:share_id>", views.share, name="playground-share"),
    path(f"{_PLAYGROUND}/prefill", views.filled_in, name="playground-prefill"),
    path(f"{_PLAYGROUND}/commits", views.prompt_commit, name="playground-commits"),
    path(f"{_PLAYGROUND}/experiments", views.experiment_list, name="playground-experiments"),
    path(
        f"{_PLAYGROUND}/experiments/estimate",
        views.experiment_estimate,
        name="playground-experiment-estimate",
    ),
    path(
        f"{_PLAYGROUND}/experiments/rows",
        views.experiment_rows,
        name="playground-experiment-rows",
    ),
    path(
        f"{_PLAYGROUND}/experiments/<uuid:job_id>/cancel",
        views.experiment_cancel,
        name="playground-experiment-cancel",
    ),
    path(
        f"{_PLAYGROUND}/experiments/<uuid:job_id>/resume",
        views.experiment_resume,
        name="playground-experiment-resume",
    ),
]
