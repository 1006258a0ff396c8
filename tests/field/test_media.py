"""Large media in the JSON of runs: held as attachments, read as sent (langfuse#7926, #6118)."""

from __future__ import annotations

import json
from base64 import b64encode
from datetime import UTC, datetime
from hashlib import sha256
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.core import object_storage
from apps.core.json import dumps
from apps.exports.parquet import to_parquet
from apps.ingest.decoders import decode_multipart
from apps.ingest.services import ingest_runs
from apps.trace_store import Attachment, Payload
from apps.trace_store.filters.subjects import FilterSubject, extract_texts
from apps.trace_store.filters.terms import ANYTHING, extract_terms
from apps.trace_store.media import MIN_LENGTH, extract_media, restore_media
from apps.trace_store.postgres.postprocess.processor import process_all
from tests.examples import fuzz_settings
from tests.exports.conftest import read_parquet
from tests.factories.tracing import BOUNDARY, ingest, multipart_body, read_run, wire_run

pytestmark = pytest.mark.django_db

PNG = b"\x89PNG\r\n\x1a\n" + Random(1).randbytes(60_000)
BEGINNINGS = {
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/jpeg": b"\xff\xd8\xff\xe0",
    "image/gif": b"GIF89a",
    "image/webp": b"RIFF\0\0\0\0WEBP",
    "application/pdf": b"%PDF-1.7",
    "audio/wav": b"RIFF\0\0\0\0WAVE",
    "audio/mpeg": b"ID3\x04",
    "audio/ogg": b"OggS",
    "video/mp4": b"\0\0\0\x20ftypisom",
}


def encoded(content: bytes = PNG) -> str:
    return b64encode(content).decode()


def name_of(content: bytes, extension: str = "png") -> str:
    return f"media-{sha256(content).hexdigest()}.{extension}"


@pytest.mark.parametrize(
    "block",
    [
        pytest.param({"image_url": {"url": f"data:image/png;base64,{encoded()}"}}, id="OpenAI"),
        pytest.param({"source": {"type": "base64", "data": encoded()}}, id="Anthropic"),
        pytest.param({"inlineData": {"mimeType": "image/png", "data": encoded()}}, id="Gemini"),
        pytest.param(
            {"text": f"![plot](data:image/png;base64,{encoded()}) of sales"}, id="Markdown"
        ),
        pytest.param({"text": json.dumps({"image": encoded()})}, id="JSON in a text"),
        pytest.param([f"data:image/png;charset=x;base64,{encoded()}"] * 3, id="three times"),
    ],
)
def test_a_large_medium_leaves_the_row_and_reads_as_it_was_sent(api, workspace, block):
    run = wire_run(inputs={"content": block}, outputs={"content": block, "n": 1.0})

    ingest(workspace, run)

    stored = read_run(workspace, run["id"])
    assert [(item.name, item.mime_type, item.size) for item in stored.row.attachments] == [
        (name_of(PNG), "image/png", len(PNG))
    ]
    assert object_storage.get(stored.row.attachments[0].path) == PNG
    for payload in (Payload.INPUTS, Payload.OUTPUTS):
        assert len(stored.payloads[payload]) < 1_000
        assert encoded() not in stored.payloads[payload].decode()
    answer = api.get(f"/runs/{run['id']}").json()
    assert (answer["inputs"], answer["outputs"]) == (run["inputs"], run["outputs"])
    assert stored.json(Payload.OUTPUTS) == json.dumps(run["outputs"]).encode()


def test_other_long_texts_stay_in_the_row(workspace):
    texts = {
        "letters": "x" * 100_000,
        "no file": encoded(b"\1\2" + PNG),
        "short": encoded(PNG[:10_000]),
        "wrapped": "\n".join(encoded()[start : start + 76] for start in range(0, 80_000, 76)),
        "odd": f"data:image/png;base64,{encoded()[:-1]}",
        encoded(): "a key",
    }
    run = wire_run(inputs=texts)

    ingest(workspace, run)

    stored = read_run(workspace, run["id"])
    assert stored.row.attachments == []
    assert stored.value(Payload.INPUTS) == texts


def test_an_update_brings_its_own_media(api, workspace):
    audio = b"ID3\x04" + Random(2).randbytes(40_000)
    run = wire_run(inputs={"image": encoded()}, outputs=None, end_time=None)
    ingest(workspace, run)

    api.patch(f"/runs/{run['id']}", {
        "outputs": {"speech": encoded(audio)}, "end_time": datetime.now(UTC).isoformat(),
    })  # fmt: skip

    stored = read_run(workspace, run["id"])
    assert {item.name for item in stored.row.attachments} == {
        name_of(PNG), name_of(audio, "mp3")
    }  # fmt: skip
    assert stored.value(Payload.INPUTS) == run["inputs"]
    assert stored.value(Payload.OUTPUTS) == {"speech": encoded(audio)}


def test_an_update_that_precedes_its_run_keeps_its_media(api, workspace):
    run = wire_run(inputs={"image": encoded()})
    api.patch(f"/runs/{run['id']}", {"outputs": {"image": encoded()}})

    ingest(workspace, {name: value for name, value in run.items() if name != "outputs"})

    stored = read_run(workspace, run["id"])
    assert stored.value(Payload.OUTPUTS) == {"image": encoded()}
    assert len(stored.row.attachments) == 1


def test_media_are_not_searched_and_do_not_fill_the_index(api, workspace):
    word = "iVBORw0KGgo".lower()
    inputs = {"question": "What does this plot show?", "image": encoded(PNG * 20)}
    small = {"question": "Another plot", "image": encoded(PNG[:3_000])}
    runs = [wire_run(inputs=item) for item in (inputs, small)]
    ingest(workspace, *runs)
    process_all()

    def found(condition: str) -> set[str]:
        body = {"filter": condition, "session": [project_id], "limit": 10}
        return {row["id"] for row in api.post("/runs/query", body).json()["runs"]}

    project_id = str(read_run(workspace, runs[0]["id"]).row.project_id)
    ids = {run["id"] for run in runs}
    assert found('search("plot")') == ids
    assert found(f'search("{word}*")') == set()
    assert found('and(eq(input_key, "question"), like(input_value, "%Another%"))') == {
        runs[1]["id"]
    }
    for run in runs:
        stored = read_run(workspace, run["id"])
        terms = extract_terms(FilterSubject(run=stored.row, inputs=stored.payloads[Payload.INPUTS]))
        assert ANYTHING not in terms.hashes
        assert len(terms.hashes) + len(terms.words) < 60


def test_texts_without_blanks_stay_searchable():
    hexadecimal, path = "0123456789abcdef" * 50, "/usr/lib/python" * 60
    payload = dumps({"a": hexadecimal, "b": path, "c": f"see data:x;base64,{encoded()} there"})

    assert set(extract_texts(payload)) == {hexadecimal, path, "see data:x;base64, there"}


def test_an_export_has_references_to_attachments(workspace):
    run = wire_run(inputs={"text": "plot", "image": f"data:image/png;base64,{encoded()}"})
    ingest(workspace, run)
    stored = read_run(workspace, run["id"])

    content = to_parquet([stored], ["inputs", "attachments"], compression="none", feedback={})

    (row,) = read_parquet(content)
    name = name_of(PNG)
    reference = f"slipway-media:{sha256(PNG).hexdigest()}"
    assert json.loads(row["inputs"]) == {
        "text": "plot", "image": f"data:image/png;base64,{reference}"
    }  # fmt: skip
    assert json.loads(row["attachments"]) == {name: {"mime_type": "image/png", "size": len(PNG)}}


def test_an_example_of_the_run_has_the_medium_in_its_inputs_only(api, workspace):
    run = wire_run(inputs={"image": encoded()})
    ingest(workspace, run)
    dataset = api.post("/datasets", {"name": "plots"}).json()

    example = api.post("/examples", {
        "dataset_id": dataset["id"], "source_run_id": run["id"], "use_source_run_io": True,
    }).json()  # fmt: skip

    assert example["inputs"] == run["inputs"]
    assert not example["attachment_urls"]


def test_a_lost_medium_leaves_its_reference(workspace):
    run = wire_run(inputs={"image": encoded(), "question": "why"})
    ingest(workspace, run)
    stored = read_run(workspace, run["id"])
    object_storage.remove([stored.row.attachments[0].path])

    assert stored.value(Payload.INPUTS) == {
        "image": f"slipway-media:{sha256(PNG).hexdigest()}", "question": "why"
    }  # fmt: skip


def test_a_reference_reads_only_attachments_of_its_run(workspace):
    """A client that writes a reference itself reads no medium of another run."""
    owner = wire_run(inputs={"image": encoded()})
    thief = wire_run(inputs={"image": f"slipway-media:{sha256(PNG).hexdigest()}"})

    ingest(workspace, owner, thief)

    assert read_run(workspace, thief["id"]).value(Payload.INPUTS) == thief["inputs"]


MEDIA = st.builds(
    lambda beginning, seed, size: beginning + Random(seed).randbytes(size),
    st.sampled_from([*BEGINNINGS.values(), b"", b"\0\0\0\0"]),
    st.integers(0, 100),
    st.integers(MIN_LENGTH // 2, MIN_LENGTH),
)
TEXTS = st.one_of(
    st.text(max_size=20),
    st.just("slipway-media:" + "0" * 64),
    MEDIA.map(lambda content: b64encode(content).decode()),
    MEDIA.map(lambda content: f"data:image/png;base64,{b64encode(content).decode()}"),
    MEDIA.map(lambda content: f"<img src='data:a/b;x;base64,{b64encode(content).decode()}'>"),
    MEDIA.map(lambda content: json.dumps({"a": b64encode(content).decode()[:-1]})),
    MEDIA.map(lambda content: b64encode(content, b"-_").decode()),
)
VALUES = st.recursive(
    TEXTS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@fuzz_settings(60)
@given(value=VALUES, has_spaces=st.booleans())
def test_restored_json_is_byte_for_byte_what_was_sent(value, has_spaces):
    payload = json.dumps(value, separators=None if has_spaces else (",", ":")).encode()

    stored, media = extract_media(payload)

    attachments = []
    for medium in media:
        path = f"attachments/{medium.name}"
        object_storage.put(path, medium.content)
        size = len(medium.content)
        attachments.append(
            Attachment(name=medium.name, path=path, mime_type=medium.mime_type, size=size)
        )
    assert restore_media(stored, attachments) == payload
    assert len({medium.name for medium in media}) == len(media)
    json.loads(stored)


@pytest.mark.parametrize("mime_type", BEGINNINGS)
def test_the_type_of_a_file_is_read_from_its_first_bytes(mime_type):
    content = BEGINNINGS[mime_type] + Random(3).randbytes(MIN_LENGTH)

    _, (medium,) = extract_media(dumps({"data": encoded(content)}))

    assert (medium.mime_type, medium.content) == (mime_type, content)


def test_a_deleted_trace_takes_its_media_along(api, workspace):
    run = wire_run(inputs={"image": encoded()})
    ingest(workspace, run)
    stored = read_run(workspace, run["id"]).row
    (file,) = stored.attachments
    assert object_storage.get(file.path) == PNG

    deleted = api.post(
        "/runs/delete", {"session_id": str(stored.project_id), "trace_ids": [run["id"]]}
    )

    assert deleted.status_code == 202
    with pytest.raises(FileNotFoundError):
        object_storage.get(file.path)


@pytest.mark.parametrize(("files", "count"), [({}, 0), ({"notes.txt": b"a"}, 1)])
def test_the_page_of_a_run_lists_only_files_that_were_sent(page, workspace, files, count):
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{encoded()}"}}
    run = wire_run(inputs={"messages": [{"role": "user", "content": [image]}]})
    parts = [(f"post.{run['id']}", run)]
    parts += [
        (f"attachment.{run['id']}.{name}", content, "Content-Type: text/plain")
        for name, content in files.items()
    ]
    body = multipart_body(*parts)
    ingest_runs.ingest(workspace.pk, decode_multipart(body, BOUNDARY.encode()))
    stored = read_run(workspace, run["id"]).row

    html = page.get(
        f"/o/{workspace.pk}/projects/p/{stored.project_id}/r/{run['id']}"
    ).content.decode()

    assert len(stored.attachments) == count + 1
    assert "media-" not in html
    assert html.count('<figure class="attachment"') == count
    assert f"data:image/png;base64,{encoded()[:40]}" in html
