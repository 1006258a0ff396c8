import pytest

from apps.core.http.middleware import canonical


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ("/runs/multipart", "/runs/multipart"),
        ("/api/v1/runs/multipart", "/runs/multipart"),
        ("/api/runs/multipart", "/runs/multipart"),
        ("/repos/", "/repos"),
        ("/api/v1/platform/datasets/x/examples", "/v1/platform/datasets/x/examples"),
        ("/platform/datasets/x/examples", "/v1/platform/datasets/x/examples"),
        ("/v1/platform/issues", "/v1/platform/issues"),
        ("/api/v2/runs/query", "/v2/runs/query"),
        ("/api-host/v2/deployments", "/v2/deployments"),
        ("/api/v1/v2/deployments", "/v2/deployments"),
        ("/otel/v1/traces", "/otel/v1/traces"),
        ("/api/v1/otel/v1/traces", "/otel/v1/traces"),
        ("/admin/api_keys/apikey/", "/admin/api_keys/apikey/"),
        ("/agents/a/api/v1/x/", "/agents/a/api/v1/x/"),
        ("/", "/"),
    ],
)
def test_each_prefix_maps_to_one_canonical_path(sent, expected):
    assert canonical(sent) == expected
