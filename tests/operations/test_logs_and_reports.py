import json
import logging

import pytest

from apps.core.callers import Caller
from apps.core.observability import logs, reporting
from apps.core.request_context import RequestContext, activate
from tests.factories.api_keys import key_for
from tests.factories.organizations import WorkspaceFactory
from tests.factories.tracing import wire_run

WORKSPACE = WorkspaceFactory.build()


def format_log_line(*, as_json=True, error=None):
    record = logging.LogRecord("apps.core", logging.ERROR, "x.py", 1, "it failed", (), error)
    return logs.build_formatter(as_json=as_json).format(record)


def make_error_info():
    payload = "sentinel-payload"
    try:
        raise ValueError(len(payload))
    except ValueError as error:
        return (type(error), error, error.__traceback__)


def request_context():
    caller = Caller(WORKSPACE.organization.pk, WORKSPACE.pk, frozenset())
    return RequestContext("192.0.2.1", "request-1", caller, organization_id=caller.organization_id)


def test_log_line_is_one_json_object_with_request_and_workspace_ids():
    with activate(request_context()):
        event = json.loads(format_log_line())

    assert event["event"] == "it failed"
    assert (event["request_id"], event["workspace_id"]) == ("request-1", str(WORKSPACE.pk))
    assert event["organization_id"] == str(WORKSPACE.organization.pk)
    assert event["level"] == "error"


def test_json_traceback_stays_on_one_line_without_variables():
    text = format_log_line(error=make_error_info())

    assert "\n" not in text
    assert "ValueError: 16" in json.loads(text)["exception"]
    assert "sentinel-payload'" not in text.replace('"sentinel-payload"', "")


def test_console_traceback_shows_no_variables():
    text = format_log_line(as_json=False, error=make_error_info())

    assert "ValueError: 16" in text
    assert "payload = 'sentinel" not in text


@pytest.mark.django_db
def test_request_payload_is_not_logged(client, caplog):
    caplog.set_level(logging.DEBUG, logger="apps")
    headers = {"X-Api-Key": key_for(WorkspaceFactory(), "ingest")}

    client.post(
        "/runs/batch",
        {"post": [wire_run(inputs={"a": "sentinel-words"}), {"id": "sentinel-broken"}]},
        content_type="application/json",
        headers=headers,
    )

    assert "sentinel" not in caplog.text
    assert headers["X-Api-Key"] not in caplog.text


def test_error_report_contains_ids_and_no_request_data():
    event = {
        "request": {
            "method": "POST",
            "url": "https://x.example/runs?token=sentinel",
            "headers": {"X-Api-Key": "sentinel"},
            "cookies": "sentinel",
            "data": "sentinel",
            "query_string": "sentinel",
            "env": {"REMOTE_ADDR": "sentinel"},
        },
        "user": {"ip_address": "sentinel"},
        "extra": {"a": "sentinel"},
        "breadcrumbs": {"values": ["sentinel"]},
        "logentry": {"message": "%s failed", "params": ["sentinel"], "formatted": "sentinel"},
        "exception": {
            "values": [
                {
                    "type": "IntegrityError",
                    "value": "duplicate key\nDETAIL:  Key (name)=(sentinel) already exists.",
                    "stacktrace": {"frames": [{"function": "f", "vars": {"a": "sentinel"}}]},
                }
            ]
        },
    }

    with activate(request_context()):
        sent = reporting.remove_tenant_data(event, {})

    assert "sentinel" not in json.dumps(sent)
    assert sent["request"] == {"method": "POST", "url": "https://x.example/runs"}
    assert sent["exception"]["values"][0]["value"] == "duplicate key"
    assert sent["tags"] == {"request_id": "request-1", "workspace_id": str(WORKSPACE.pk)}


def test_reporting_without_a_dsn_does_not_start(settings, monkeypatch):
    settings.SENTRY_DSN = ""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("sentry_sdk was started")

    monkeypatch.setattr("sentry_sdk.init", refuse)

    reporting.start()
