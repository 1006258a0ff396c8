"""The endpoint for experiments that were run elsewhere."""

from __future__ import annotations

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from apps.core.api import ApiRequest, WorkspaceAPIView
from apps.datasets.api.rendering import datasets_json
from apps.datasets.api.request_schema import request_schema
from apps.datasets.wire import decode
from apps.experiments.services.uploads import upload_experiment
from apps.experiments.wire import WireUpload
from apps.organizations.permissions import Permission
from apps.tracing.api.v1.projects import projects_json


class UploadExperimentView(WorkspaceAPIView):
    required_permission = Permission.EXPERIMENTS_WRITE

    @extend_schema(request=request_schema(WireUpload), responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """Store a finished experiment with its dataset; both are returned."""
        for permission in (Permission.DATASETS_WRITE, Permission.PROJECTS_WRITE):
            request.auth.require(permission)
        dataset, project = upload_experiment(
            workspace_id=self.workspace_id,
            upload=decode(request.body, WireUpload),
            user_id=request.auth.user_id,
        )
        stats = {"include_stats": True, "facets": False}
        return Response(
            {
                "dataset": datasets_json(self.workspace_id, [dataset])[0],
                "experiment": projects_json(self.workspace_id, [project], stats)[0],
            }
        )


routes = [
    path("datasets/upload-experiment", UploadExperimentView.as_view(), name="experiment-upload"),
]
