"""Pages of annotation queues."""

from django.urls import path

from apps.annotation import views

_QUEUES = "o/<uuid:workspace_id>/annotation"
_QUEUE = f"{_QUEUES}/<uuid:queue_id>"
_ITEM = f"{_QUEUE}/i/<uuid:queue_item_id>"

urlpatterns = [
    path(_QUEUES, views.annotation_list, name="annotation-list"),
    path(f"{_QUEUES}/new", views.annotation_new, name="annotation-new"),
    path(f"{_QUEUES}/add", views.annotation_add, name="annotation-add"),
    path(_QUEUE, views.annotation_review, name="annotation-review"),
    path(f"{_QUEUE}/settings", views.annotation_settings, name="annotation-settings"),
    path(f"{_QUEUE}/delete", views.annotation_delete, name="annotation-delete"),
    path(f"{_ITEM}/reserve", views.annotation_reserve, name="annotation-reserve"),
    path(f"{_ITEM}/score", views.annotation_score, name="annotation-score"),
    path(f"{_ITEM}/done", views.annotation_complete, name="annotation-complete"),
    path(f"{_ITEM}/skip", views.annotation_skip, name="annotation-skip"),
]
