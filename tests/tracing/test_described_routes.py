"""The OpenAPI document matches the routes, and no route answers 5xx to any generated request.

`make fuzz EXAMPLES=100` tries more requests for each route than `make test`.
"""

from __future__ import annotations

import json

import pytest
import schemathesis
from django.db import transaction
from django.test import Client
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from apps.tracing.api import openapi
from tests.examples import EXAMPLES
from tests.factories.api_keys import key_for
from tests.other_tenant import PARAMETER
from tests.tenant_fixtures import create_tracing_rows

pytestmark = pytest.mark.exhaustive

METHODS = ("get", "post", "put", "patch", "delete")
DOCUMENT = openapi.build_document()
OPERATIONS = [
    (method, path)
    for path, operations in DOCUMENT["paths"].items()
    for method in METHODS
    if method in operations
]
SUBJECTS = sorted({path.split("/")[1] for _, path in OPERATIONS})
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)


def document_path(path):
    """Return the path of a Django route without the converters of its parameters."""
    return PARAMETER.sub(r"{\1}", path)


def test_the_document_is_served_without_authentication(client, db):
    response = client.get("/api/v1/openapi.json")

    assert response.status_code == 200
    assert response.json() == json.loads(json.dumps(DOCUMENT))


def test_the_document_describes_every_route_of_tracing():
    from apps.feedback.api import urls as feedback_urls
    from apps.ingest.api import urls as ingest_urls
    from apps.tracing.api import urls as tracing_urls

    patterns = [
        *tracing_urls.urlpatterns,
        *feedback_urls.urlpatterns,
        *ingest_urls.urlpatterns,
    ]
    paths = {document_path(f"/{pattern.pattern}") for pattern in patterns}

    # Routes that serve files or schemas, the document itself, and routes that only machines call.
    assert {path for path in paths if path not in DOCUMENT["paths"]} == {
        "/public/download",
        "/public/{token}/run/{run_id}/attachments/{name}",
        "/openapi.json",
        "/public/schemas/v1/tooldef.json",
        "/public/schemas/v1/message.json",
        "/otel/v1/claude_code",
        "/otel/v1/metrics",
        "/otel/v1/logs",
        "/auth",
        "/^(?:(?:.+/)?v1/)?metadata/submit$",
    }


@pytest.fixture
def tenant_rows(workspace):
    return create_tracing_rows(workspace, "word", "secret")


def to_text(value):
    return value if isinstance(value, str) else json.dumps(value)


def send_case(client, case, tenant_rows, real):
    """Send the case with Django's client; `real` puts ids of existing rows into the path."""
    path = case.path
    for name, value in (case.path_parameters or {}).items():
        row_id = tenant_rows.get(name)
        segment = str(row_id) if real and row_id is not None else to_text(value)
        path = path.replace(f"{{{name}}}", segment.replace("?", "%3F").replace("#", "%23"))
    query = case.query or {}
    body, content_type = case.body, case.media_type
    if isinstance(body, schemathesis.core.NotSet) or body is None:
        data = b""
    elif isinstance(body, bytes):
        data = body
    else:
        data = json.dumps(body).encode("utf-8", "surrogatepass")
    headers = {
        name: value
        for name, value in (case.headers or {}).items()
        if str(value).isascii() and str(value).isprintable()
    }
    return client.generic(
        case.method,
        path.encode("utf-8", "surrogatepass").decode("latin-1"),
        data,
        content_type=content_type or "application/json",
        query_params={
            name: [to_text(item) for item in value] if isinstance(value, list) else to_text(value)
            for name, value in query.items()
        },
        headers=headers,
    )


@pytest.mark.parametrize("subject", SUBJECTS)
def test_no_generated_request_fails_with_a_server_error(subject, workspace, tenant_rows):
    client = Client(headers={"X-Api-Key": key_for(workspace)}, raise_request_exception=False)
    failures = []

    for method, path in OPERATIONS:
        if path.split("/")[1] == subject:
            operation = SCHEMA[path][method.upper()]
            failures += find_failures(client, operation, tenant_rows)

    assert failures == []


def find_failures(client, operation, tenant_rows):
    """Return the first failure of the operation with its request."""

    @settings(
        max_examples=EXAMPLES,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(), real=st.booleans())
    def check_case(case, real):
        with transaction.atomic():
            response = send_case(client, case, tenant_rows, real)
            transaction.set_rollback(True)
        failure_details = response.status_code, response.content[:300], case.as_curl_command()
        assert response.status_code < 500 or response.status_code == 501, failure_details

    try:
        check_case()
    except AssertionError as failure:
        return [f"{operation.label}: {failure}"]
    return []
