"""The OpenAPI document: true to the routes, and none of them fails whatever it is sent.

`make fuzz EXAMPLES=100` asks each route more often than `make test` does.
"""

from __future__ import annotations

import json
import os

import pytest
import schemathesis
from django.db import transaction
from django.test import Client
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from apps.tracing.api import openapi
from tests.factories.api_keys import key_for
from tests.other_tenant import PARAMETER
from tests.tenant_fixtures import plant

EXAMPLES = int(os.environ.get("EXAMPLES", "4"))
METHODS = ("get", "post", "put", "patch", "delete")
DOCUMENT = openapi.build_document()
OPERATIONS = [
    (method, path)
    for path, operations in DOCUMENT["paths"].items()
    for method in METHODS
    if method in operations
]
SUBJECTS = sorted({path.split("/")[1] for _, path in OPERATIONS})


def shown(path):
    """The path as Django routes have it, without the names of its parameters' converters."""
    return PARAMETER.sub(r"{\1}", path)


def test_the_document_is_served_to_everybody(client, db):
    response = client.get("/api/v1/openapi.json")

    assert response.status_code == 200
    assert response.json() == json.loads(json.dumps(DOCUMENT))


def test_every_route_of_tracing_is_described():
    from apps.feedback.api import urls as feedback_urls
    from apps.ingest.api import urls as ingest_urls
    from apps.tracing.api import urls as tracing_urls

    patterns = [
        *tracing_urls.urlpatterns,
        *feedback_urls.urlpatterns,
        *ingest_urls.urlpatterns,
    ]
    plain = {shown(f"/{pattern.pattern}") for pattern in patterns}

    # What gives out files or schemas, the document itself, and what only machines call.
    assert {path for path in plain if path not in DOCUMENT["paths"]} == {
        "/public/download",
        "/public/{token}/run/{run_id}/attachments/{name}",
        "/openapi.json",
        "/public/schemas/v1/tooldef.json",
        "/public/schemas/v1/message.json",
        "/otel/v1/claude_code",
        "/auth",
        "/^(?:(?:.+/)?v1/)?metadata/submit$",
    }


@pytest.fixture
def planted(workspace):
    return plant(workspace, "word", "secret")


def text(value):
    return value if isinstance(value, str) else json.dumps(value)


def sent(client, case, planted, real):
    """The case by Django's client; where `real` says so, with the ids of rows that are there."""
    path = case.path
    for name, value in (case.path_parameters or {}).items():
        known = planted.get(name)
        given = str(known) if real and known is not None else text(value)
        path = path.replace(f"{{{name}}}", given.replace("?", "%3F").replace("#", "%23"))
    query = case.query or {}
    body, kind = case.body, case.media_type
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
        content_type=kind or "application/json",
        query_params={
            name: [text(one) for one in value] if isinstance(value, list) else text(value)
            for name, value in query.items()
        },
        headers=headers,
    )


@pytest.mark.parametrize("subject", SUBJECTS)
def test_no_route_fails_whatever_it_is_sent(subject, workspace, planted):
    client = Client(headers={"X-Api-Key": key_for(workspace)}, raise_request_exception=False)
    failed = []

    for method, path in OPERATIONS:
        if path.split("/")[1] == subject:
            described = schemathesis.openapi.from_dict(DOCUMENT)[path][method.upper()]
            failed += asked(client, described, planted)

    assert failed == []


def asked(client, described, planted):
    """The first failure of the operation, and the request that it took."""

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=described.as_strategy(), real=st.booleans())
    def ask(case, real):
        with transaction.atomic():
            response = sent(client, case, planted, real)
            transaction.set_rollback(True)
        said = response.status_code, response.content[:300], case.as_curl_command()
        assert response.status_code < 500 or response.status_code == 501, said

    try:
        ask()
    except AssertionError as failure:
        return [f"{described.label}: {failure}"]
    return []
