import json
import logging

import pytest

from apps.core import logs, reporting
from apps.core.callers import Caller
from apps.core.request_context import RequestContext, activate
from tests.factories.api_keys import key_for
from tests.factories.organizations import WorkspaceFactory
from tests.factories.tracing import wire_run

WORKSPACE = WorkspaceFactory.build()


def line(*, as_json=True, error=None):
    record = logging.LogRecord("apps.x", logging.ERROR, "x.py", 1, "it failed", (), error)
    return logs.formatter(as_json=as_json).format(record)


def failing():
    payload = "sentinel-payload"
    try:
        raise ValueError(len(payload))
    except ValueError as error:
        return (type(error), error, error.__traceback__)


def origin():
    caller = Caller(WORKSPACE.organization.pk, WORKSPACE.pk, frozenset())
    return RequestContext("192.0.2.1", "request-1", caller, organization_id=caller.organization_id)


def test_a_line_is_one_json_object_with_the_ids_of_request_and_workspace():
    with activate(origin()):
        said = json.loads(line())

    assert said["event"] == "it failed"
    assert (said["request_id"], said["workspace_id"]) == ("request-1", str(WORKSPACE.pk))
    assert said["organization_id"] == str(WORKSPACE.organization.pk)
    assert said["level"] == "error"


def test_a_traceback_stays_on_the_line_and_shows_no_variables():
    text = line(error=failing())

    assert "\n" not in text
    assert "ValueError: 16" in json.loads(text)["exception"]
    assert "sentinel-payload'" not in text.replace('"sentinel-payload"', "")


def test_lines_for_people_show_no_variables_either():
    text = line(as_json=False, error=failing())

    assert "ValueError: 16" in text
    assert "payload = 'sentinel" not in text


@pytest.mark.django_db
def test_a_request_leaves_none_of_its_payload_in_the_log(client, caplog):
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


def test_a_report_carries_ids_and_nothing_that_was_sent():
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

    with activate(origin()):
        sent = reporting.without_payloads(event, {})

    assert "sentinel" not in json.dumps(sent)
    assert sent["request"] == {"method": "POST", "url": "https://x.example/runs"}
    assert sent["exception"]["values"][0]["value"] == "duplicate key"
    assert sent["tags"] == {"request_id": "request-1", "workspace_id": str(WORKSPACE.pk)}


def test_without_a_dsn_nothing_is_loaded(settings, monkeypatch):
    settings.SENTRY_DSN = ""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("sentry_sdk was started")

    monkeypatch.setattr("sentry_sdk.init", refuse)

    reporting.start()
