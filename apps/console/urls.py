from django.urls import path

from apps.console import views

urlpatterns = [
    path("", views.home, name="home"),
    path("sign-in", views.sign_in, name="sign-in"),
    path("sign-out", views.sign_out, name="sign-out"),
    path("o/<uuid:workspace_id>", views.workspace_home, name="workspace-home"),
    path("o/<uuid:workspace_id>/first-steps", views.first_steps, name="first-steps"),
    path("o/<uuid:workspace_id>/search", views.search_palette, name="palette-search"),
    path("o/<uuid:workspace_id>/host/deployments", views.host_deployments, name="host-deployments"),
    path(
        "o/<uuid:workspace_id>/host/deployments/<uuid:deployment_id>",
        views.host_deployments,
        name="host-deployment",
    ),
    path(
        "host/deployments",
        views.host_deployments_of_last_workspace,
        name="host-deployments-default",
    ),
]
