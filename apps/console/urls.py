from django.urls import path

from apps.console import documentation, views

urlpatterns = [
    path("", views.home, name="home"),
    path("sign-in", views.sign_in, name="sign-in"),
    path("sign-out", views.sign_out, name="sign-out"),
    path("o/<uuid:workspace_id>", views.workspace_home, name="workspace-home"),
    path("start", views.start_of_last_workspace, name="start-default"),
    path("o/<uuid:workspace_id>/start", views.start, name="start"),
    path("o/<uuid:workspace_id>/start/sample", views.sample_data_change, name="start-sample"),
    path("o/<uuid:workspace_id>/start/agent", views.sample_agent_deploy, name="start-agent"),
    path("o/<uuid:workspace_id>/start/steps", views.first_steps, name="start-steps"),
    path("llms.txt", documentation.llms_txt, name="llms-txt"),
    path("SKILL.md", documentation.skill, name="skill"),
    path("docs", documentation.index, name="docs-index"),
    path("docs/<slug:name>.md", documentation.page, name="docs-page"),
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
