"""API routes of the playground."""

from django.urls import path

from apps.playground.api import views

urlpatterns = [
    path("playground-settings", views.PlaygroundSettingsView.as_view(), name="playground-settings"),
    path(
        "playground-settings/<uuid:playground_settings_id>",
        views.PlaygroundSettingsDetailView.as_view(),
        name="playground-settings-detail",
    ),
    path("prompts/invoke_prompt", views.InvokePromptView.as_view(), name="invoke-prompt"),
    path("prompts/canvas", views.CanvasView.as_view(), name="prompt-canvas"),
    path("generate", views.GenerateQueryView.as_view(), name="generate"),
    path("runs/generate-query", views.GenerateQueryView.as_view(), name="generate-query"),
    path(
        "datasets/playground_experiment/batch",
        views.PlaygroundExperimentView.as_view(),
        name="playground-experiment-batch",
    ),
    path(
        "datasets/playground_experiment/stream",
        views.PlaygroundExperimentStreamView.as_view(),
        name="playground-experiment-stream",
    ),
    path(
        "datasets/studio_experiment", views.StudioExperimentView.as_view(), name="studio-experiment"
    ),
]
