"""Routes of the playground: the data of its page, and its API."""

from django.urls import path

from apps.playground import views

_PLAYGROUND = "o/<uuid:workspace_id>/playground"
urlpatterns = [
    path(f"{_PLAYGROUND}/models", views.models, name="playground-models"),
    path(f"{_PLAYGROUND}/stream", views.stream, name="playground-stream"),
    path(f"{_PLAYGROUND}/draft", views.draft, name="playground-draft"),
    path(f"{_PLAYGROUND}/shares", views.shares, name="playground-shares"),
    path(f"{_PLAYGROUND}/shares/<uuid:share_id>", views.share, name="playground-share"),
    path(f"{_PLAYGROUND}/prefill", views.filled_in, name="playground-prefill"),
    path(f"{_PLAYGROUND}/commits", views.prompt_commit, name="playground-commits"),
]
