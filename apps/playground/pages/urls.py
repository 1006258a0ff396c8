from django.urls import path

from apps.playground.pages import views

_PLAYGROUND = "o/<uuid:workspace_id>/playground"
urlpatterns = [
    path(_PLAYGROUND, views.playground, name="playground"),
    path(
        f"{_PLAYGROUND}/datasets/<uuid:dataset_id>",
        views.dataset_fields,
        name="playground-dataset",
    ),
]
