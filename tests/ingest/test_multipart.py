"""POST /runs/multipart."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
import zstandard

from apps.core.ids import uuid7
from apps.feedback.models import Feedback
from apps.trace_store import Payload, Status, run_store
from apps.tracing.models import Project
from tests.factories.tracing import (
    MULTIPART,
    ProjectFactory,
    count_stored_runs,
    end_fields,
    multipart_body,
    read_run,
    start_fields,
    wire_run,
)


def test_anonymous_request_is_rejected(client, db):
    response = client.post("/runs/multipart", b"", content_type=MULTIPART)

    assert response.status_code == 401
    assert count_stored_runs() == 0


def test_read_only_key_is_rejected(make_api, workspace):
    run = wire_run()

    response = make_api(workspace, "read").multipart(multipart_body((f"post.{run['id']}", run)))

    assert response.status_code == 403
    assert count_stored_runs() == 0


def test_another_workspace_does_not_see_the_run(api, workspace, other_workspace):
    run = wire_run()

    assert api.multipart(multipart_body((f"post.{run['id']}", run))).status_code == 202

    assert read_run(workspace, run["id"]).row.name == "step"
    assert (
        run_store.find_existing_ids(other_workspace.pk, [read_run(workspace, run["id"]).row.id])
        == set()
    )


def test_separate_fields_are_joined_in_any_order(api, workspace):
    run = wire_run(extra={"metadata": {"a": 1}, "runtime": {"sdk": "py"}}, tags=["x", "y"])
    name = f"post.{run['id']}"
    large = {field: run.pop(field) for field in ("inputs", "outputs", "extra")}

    response = api.multipart(
        multipart_body(
            (f"{name}.outputs", large["outputs"]),
            (f"{name}.extra", large["extra"]),
            (name, run),
            (f"{name}.inputs", large["inputs"]),
        )
    )

    assert response.status_code == 202
    stored = read_run(workspace, run["id"])
    assert {payload: stored.value(payload) for payload in (Payload.INPUTS, Payload.OUTPUTS)} == {
        Payload.INPUTS: {"question": "why?"},
        Payload.OUTPUTS: {"answer": "because"},
    }
    assert stored.value(Payload.EXTRA) == large["extra"]
    assert stored.row.tags == ["x", "y"]
    assert stored.row.status == Status.SUCCESS
    assert stored.row.latency == timedelta(seconds=1)


@pytest.mark.parametrize(
    "head",
    [
        "Content-Type: application/json; length={length}",
        "Content-Type: application/json\r\nContent-Length: {length}",
        "content-type: application/json",
        "X-Other: a\r\nContent-Type:application/json",
    ],
)
@pytest.mark.parametrize(
    "disposition",
    [
        'form-data; name="{name}"; filename="blob"',
        'form-data; filename="blob"; name="{name}"',
        "form-data; name={name}",
        "form-data; name*=utf-8''{name}",
    ],
)
def test_a_part_is_read_with_any_form_of_its_headers(api, workspace, head, disposition):
    run = wire_run()
    content = json.dumps(run).encode()
    body = multipart_body(
        (
            disposition.format(name=f"post.{run['id']}"),
            content,
            head.format(length=len(content)),
        )
    )

    assert api.multipart(body).status_code == 202

    assert read_run(workspace, run["id"]).row.name == "step"


def test_zstd_of_several_frames_is_read_completely(api, workspace):
    first, second = wire_run(name="first"), wire_run(name="second")
    body = multipart_body((f"post.{first['id']}", first), (f"post.{second['id']}", second))
    frames = b"".join(
        zstandard.ZstdCompressor(write_content_size=False).compress(body[offset : offset + 300])
        for offset in range(0, len(body), 300)
    )

    response = api.multipart(frames, **{"Content-Encoding": "zstd"})

    assert response.status_code == 202
    assert read_run(workspace, second["id"]).row.name == "second"


def test_gzip_of_several_members_is_read_completely(api, workspace):
    run = wire_run()
    body = multipart_body((f"post.{run['id']}", run))
    members = gzip.compress(body[:100]) + gzip.compress(body[100:])

    assert api.multipart(members, **{"Content-Encoding": "gzip"}).status_code == 202

    assert read_run(workspace, run["id"]).row.name == "step"


@pytest.mark.parametrize("encoding", ["zstd", "gzip", "deflate"])
def test_corrupt_compressed_body_is_rejected(api, encoding):
    response = api.multipart(b"not packed", **{"Content-Encoding": encoding})

    assert response.status_code == 400
    assert response.json()["code"] == "bad_body"


def test_decompression_bomb_is_rejected(api, settings):
    settings.MAX_BODY_BYTES = 1_000_000
    bomb = zstandard.ZstdCompressor().compress(bytes(50_000_000))

    assert api.multipart(bomb, **{"Content-Encoding": "zstd"}).status_code == 413


def test_a_truncated_body_stores_nothing(api):
    run = wire_run()
    body = multipart_body((f"post.{run['id']}", run))

    response = api.multipart(body[:-10])

    assert response.status_code == 400
    assert count_stored_runs() == 0


def test_an_update_in_the_same_body_is_merged(api, workspace):
    run = wire_run()

    api.multipart(
        multipart_body(
            (f"patch.{run['id']}", end_fields(run)), (f"post.{run['id']}", start_fields(run))
        )
    )

    stored = read_run(workspace, run["id"])
    assert stored.row.status == Status.SUCCESS
    assert stored.value(Payload.OUTPUTS) == {"answer": "because"}
    assert count_stored_runs() == 1


def test_an_update_before_its_run_is_applied(api, workspace):
    run = wire_run(tags=["late"], events=[{"name": "new_token", "time": "2026-01-02T03:04:05Z"}])
    api.multipart(multipart_body((f"patch.{run['id']}", end_fields(run))))

    response = api.multipart(
        multipart_body(
            (f"post.{run['id']}", start_fields(run) | {"end_time": None, "outputs": None})
        )
    )

    assert response.status_code == 202
    stored = read_run(workspace, run["id"])
    assert stored.row.name == "step"
    assert stored.row.end_time == datetime.fromisoformat(run["end_time"])
    assert stored.value(Payload.OUTPUTS) == {"answer": "because"}
    assert stored.value(Payload.INPUTS) == {"question": "why?"}
    assert stored.row.first_token_time == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert count_stored_runs() == 1


def test_update_replaces_the_given_fields_and_keeps_the_others(api, workspace):
    run = wire_run(extra={"metadata": {"kept": 1, "changed": 1}, "runtime": {"sdk": "py"}})
    api.multipart(multipart_body((f"post.{run['id']}", run)))
    update = end_fields(run) | {
        "outputs": {"answer": "no"},
        "error": "ValueError('x')",
        "extra": {"metadata": {"changed": 2}},
    }

    api.multipart(multipart_body((f"patch.{run['id']}", update)))

    stored = read_run(workspace, run["id"])
    assert stored.value(Payload.OUTPUTS) == {"answer": "no"}
    assert stored.value(Payload.INPUTS) == {"question": "why?"}
    assert stored.value(Payload.ERROR) == "ValueError('x')"
    assert stored.row.status == Status.ERROR
    assert stored.row.metadata == {"kept": 1, "changed": 2}
    assert stored.value(Payload.EXTRA)["runtime"] == {"sdk": "py"}


def test_a_repeated_body_changes_nothing(api, workspace):
    run = wire_run()
    body = multipart_body((f"post.{run['id']}", run))
    api.multipart(body)
    before = read_run(workspace, run["id"])

    assert api.multipart(body).status_code == 202

    assert read_run(workspace, run["id"]) == before
    assert count_stored_runs() == 1
    stats = run_store.project_stats(workspace.pk, [before.row.project_id])
    assert stats[before.row.project_id].run_count == 1


def test_the_same_id_in_two_projects_is_two_runs(api):
    run = wire_run(session_name="one")
    api.multipart(multipart_body((f"post.{run['id']}", run)))

    api.multipart(multipart_body((f"post.{run['id']}", run | {"session_name": "two"})))

    assert count_stored_runs() == 2


def test_an_invalid_run_does_not_reject_the_valid_ones(api, workspace):
    valid_run, invalid_run = wire_run(), wire_run(run_type="agent")

    response = api.multipart(
        multipart_body(
            (f"post.{invalid_run['id']}", invalid_run), (f"post.{valid_run['id']}", valid_run)
        )
    )

    assert response.status_code == 202
    (error,) = response.json()["errors"]
    assert error["id"] == invalid_run["id"]
    assert "run_type" in error["detail"]
    assert read_run(workspace, valid_run["id"]).row.name == "step"
    assert count_stored_runs() == 1


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        (("post.not-an-id", {}), "no id"),
        ((f"post.{uuid7()}.inputs", {}), "but no run"),
        ((f"post.{uuid7()}", b"{"), "not JSON"),
        ((f"post.{uuid7()}", {"name": 5, "run_type": "llm"}), "name"),
        ((f"post.{uuid7()}", {"run_type": "llm"}), "`name` is missing"),
        (
            (f"post.{uuid7()}", {"name": "x", "run_type": "llm", "start_time": "soon"}),
            "not a valid",
        ),
        ((f"thing.{uuid7()}", {}), "not supported"),
        ((f"feedback.{uuid7()}", {"run_id": str(uuid7())}), "key"),
        ((f"attachment.{uuid7()}.a", b"1", "Content-Type: text/plain; length=2"), "truncated"),
    ],
)
def test_invalid_part_is_rejected_with_its_reason(api, part, reason):
    response = api.multipart(multipart_body(part))

    assert response.status_code == 422
    body = response.json()
    assert body["code"] == "runs_refused"
    assert reason in body["detail"]
    assert count_stored_runs() == 0


def test_a_dotted_order_that_contradicts_the_ids_is_rejected(api):
    run = wire_run()

    response = api.multipart(
        multipart_body((f"post.{run['id']}", run | {"trace_id": str(uuid7())}))
    )

    assert response.status_code == 400
    assert response.json()["detail"].startswith("trace_id does not match first part")
    assert count_stored_runs() == 0


def test_run_in_the_far_future_is_rejected(api):
    run = wire_run(start=datetime.now(UTC) + timedelta(days=3))

    response = api.multipart(multipart_body((f"post.{run['id']}", run)))

    assert response.status_code == 422
    assert "future" in response.json()["detail"]


def test_old_run_is_stored_and_readable(api, workspace):
    run = wire_run(start=datetime(1999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC))

    assert api.multipart(multipart_body((f"post.{run['id']}", run))).status_code == 202

    assert read_run(workspace, run["id"]).row.start_time.year == 1999


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (rb'{"a": "x\u0000y"}', {"a": "x\0y"}),
        (rb'{"a": "\ud800"}', {"a": "\ufffd"}),
        (b'{"a": NaN, "b": -Infinity}', {"a": None, "b": None}),
        (b'{"a": 123456789012345678901234567890}', {"a": 123456789012345678901234567890}),
        (b'{"a": "\xff"}', {"a": "\ufffd"}),
        (b'{"a": 1.0, "b": 1e5}', {"a": 1.0, "b": 1e5}),
    ],
)
@pytest.mark.parametrize("field", ["inputs", "outputs", "extra", "events", "serialized"])
def test_values_that_postgresql_rejects_are_stored_repaired(api, workspace, field, text, value):
    run = wire_run()
    run.pop(field, None)
    if field == "events":
        text, value = b"[" + text + b"]", [value]

    response = api.multipart(
        multipart_body((f"post.{run['id']}", run), (f"post.{run['id']}.{field}", text))
    )

    assert response.status_code == 202
    assert "errors" not in response.json()
    assert read_run(workspace, run["id"]).value(Payload(field)) == value
    assert api.get(f"/runs/{run['id']}").status_code == 200


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (rb'"x\u0000y"', "x\ufffdy"),
        (rb'"\ud800"', "\ufffd"),
        (b"123456789012345678901234567890", 123456789012345678901234567890),
        (b"1e999999", None),
        (b"NaN", None),
    ],
)
def test_metadata_that_jsonb_rejects_is_stored_repaired(api, workspace, text, value):
    run = wire_run(session_name="m")
    extra = b'{"metadata": {"k": %b, "other": 1}}' % text

    response = api.multipart(
        multipart_body((f"post.{run['id']}", run), (f"post.{run['id']}.extra", extra))
    )

    assert response.status_code == 202
    assert "errors" not in response.json()
    assert read_run(workspace, run["id"]).row.metadata == {"k": value, "other": 1}
    assert api.get(f"/runs/{run['id']}").status_code == 200


def test_deeply_nested_value_is_rejected_or_stored_without_server_error(api):
    run = wire_run()
    for depth in (100, 300, 900, 1100, 100_000):
        deep = b"[" * depth + b"]" * depth
        for field in (b"inputs", b"extra", b"events"):
            text = b'{"metadata":{"a":%b}}' % deep if field == b"extra" else deep
            name = f"post.{run['id']}"
            response = api.multipart(
                multipart_body((name, run), (f"{name}.{field.decode()}", text))
            )
            assert response.status_code in {202, 422}, (depth, field)


def test_names_and_tags_with_nul_are_stored(api, workspace):
    run = wire_run(name="a\0b", tags=["x\0", 'with "quotes" and \\'], session_name="p\0")

    assert api.multipart(multipart_body((f"post.{run['id']}", run))).status_code == 202
    assert api.multipart(multipart_body((f"patch.{run['id']}", run))).status_code == 202

    row = read_run(workspace, run["id"]).row
    assert row.name == "a\ufffdb"
    assert row.tags == ["x\ufffd", 'with "quotes" and \\']


def test_two_requests_with_the_same_new_project_create_one(api, workspace):
    for _ in range(2):
        run = wire_run(session_name="new")
        api.multipart(multipart_body((f"post.{run['id']}", run)))

    assert Project.objects.for_workspace(workspace).filter(name="new").count() == 1


def test_a_run_for_a_project_of_another_workspace_is_rejected(api, other_workspace):
    foreign_project = ProjectFactory(workspace=other_workspace)
    run = wire_run(session_id=str(foreign_project.pk))

    response = api.multipart(multipart_body((f"post.{run['id']}", run)))

    assert response.status_code == 422
    assert response.json()["detail"] == "No project has this `session_id`."
    assert count_stored_runs() == 0


def test_feedback_is_stored_once_even_before_its_run(api, workspace):
    feedback_id, run_id = str(uuid7()), str(uuid7())
    body = multipart_body(
        (
            f"feedback.{feedback_id}",
            {"key": "good", "score": True, "run_id": run_id, "trace_id": run_id, "comment": "\0"},
        )
    )

    assert api.multipart(body).status_code == 202
    assert api.multipart(body).status_code == 202

    (feedback,) = Feedback.objects.for_workspace(workspace)
    assert (str(feedback.pk), feedback.key, feedback.score) == (feedback_id, "good", 1.0)
    assert feedback.comment == "\ufffd"


def test_tokens_and_costs_are_read_from_usage_metadata(api, workspace):
    outputs = {
        "usage_metadata": {
            "input_tokens": 10,
            "output_tokens": 5,
            "total_tokens": 15,
            "input_token_details": {"cache_read": 3},
            "input_cost": "0.000001",
            "output_cost": 0.000002,
        }
    }
    run = wire_run(run_type="llm", outputs=outputs)

    api.multipart(multipart_body((f"post.{run['id']}", run)))

    usage = read_run(workspace, run["id"]).row.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (10, 5, 15)
    assert usage.total_cost == Decimal("0.000003")
    assert usage.details == {"prompt_token_details": {"cache_read": 3}}
