"""A public link or token opens one object, and no other, for any caller."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit
from uuid import UUID, uuid4

import pytest
from django.core import signing
from django.test import Client

from apps.feedback.models import Feedback
from apps.feedback.services.tokens import TokenRequest, issue_tokens, token_url
from apps.tracing import urls as pages
from apps.tracing.api import urls as api
from apps.tracing.models import Project, Share
from tests.factories.exports import create_export_part
from tests.factories.tracing import MULTIPART, ingest, multipart_body, wire_run
from tests.other_tenant import PARAMETER
from tests.tracing.two_workspaces.route_client import create_client, table_digests
from tests.tracing.two_workspaces.route_requests import PUBLIC

pytestmark = pytest.mark.exhaustive

HIDDEN, SHOWN = "unspeakable", "open-to-all"
OPEN_ROUTES = [
    "/public/<token>/run",
    "/public/<token>/run/<run>",
    "/public/<token>/run/<run>/attachments/<name>",
    "/public/<token>/runs/query",
    "/public/<token>/feedbacks",
    "/public/<token>/r",
    "/public/<token>/r/<run>",
    "/public/<token>/r/transcript",
    "/v2/public/<token>/run/<run>",
    "/v2/public/<token>/runs/query",
]
BODIES = [
    {},
    {"id": ["<hidden>"]},
    {"id": ["<shown>", "<hidden>"]},
    {"limit": 1000, "filter": 'eq(name, "unspeakable")', "session": ["<project>"]},
    {"trace": "<hidden>", "is_root": None, "selects": ["INPUTS", "OUTPUTS", "EXTRA"]},
    {"selects": ["ID", "NAME", "INPUTS", "ATTACHMENTS", "FEEDBACK_STATS", "METADATA", "TAGS"]},
]
QUERIES = [
    {},
    {"run": "<hidden>"},
    {"run": ["<shown>", "<hidden>"], "limit": "100"},
    {"session": "<project>", "key": "unspeakable"},
    {"selects": ["INPUTS", "OUTPUTS"]},
    {"view": "waterfall", "q": "unspeakable"},
]


@pytest.fixture
def runs(owner):
    """A trace to be shared, and a trace of the same project that is not shared."""
    fields = {"session_name": "project", "tags": [], "error": None}
    shown = wire_run(name=SHOWN, inputs={"a": SHOWN}, outputs={"a": SHOWN}, **fields)
    hidden = wire_run(name=HIDDEN, inputs={"a": HIDDEN}, outputs={"a": HIDDEN}, **fields)
    ingest(owner, shown, wire_run(shown, name=SHOWN), hidden, wire_run(hidden, name=HIDDEN))
    key = create_client(owner, signed_in=False)
    body = multipart_body(
        (f"attachment.{shown['id']}.notes", SHOWN.encode(), "Content-Type: text/plain"),
        (f"attachment.{hidden['id']}.secrets", HIDDEN.encode(), "Content-Type: text/plain"),
    )
    response = key.post("/runs/multipart", body, content_type=MULTIPART)
    assert response.status_code == 202, response.content
    for run, word in ((shown, SHOWN), (hidden, HIDDEN)):
        feedback = {"run_id": run["id"], "key": word, "comment": word, "score": 1}
        assert key.post("/feedback", feedback, content_type="application/json").status_code == 200
    return shown["id"], hidden["id"]


@pytest.fixture
def share(owner, runs):
    project = Project.objects.for_workspace(owner).get(name="project")
    row = Share(workspace=owner, project=project, trace_id=UUID(runs[0]), run_id=UUID(runs[0]))
    row.save()
    return row


def fill(value, names):
    text = json.dumps(value)
    for name, replacement in names.items():
        text = text.replace(f"<{name}>", str(replacement))
    return json.loads(text)


def read_content(response):
    return b"".join(response) if response.streaming else response.content


def test_all_public_routes_are_tested():
    paths = {shown(f"/{pattern.pattern}") for pattern in (*api.urlpatterns, *pages.urlpatterns)}

    token_paths = {path for path in paths if path.startswith(PUBLIC) and "<token>" in path}
    assert token_paths == set(OPEN_ROUTES)


def shown(route):
    return PARAMETER.sub(lambda match: f"<{match[1].removesuffix('_id')}>", route)


@pytest.fixture(params=["anonymous", "another"])
def client(request, requester):
    return Client() if request.param == "anonymous" else create_client(requester, signed_in=True)


@pytest.mark.parametrize("route", OPEN_ROUTES)
def test_a_link_shows_only_the_shared_trace(owner, runs, share, route, client):
    names = {"shown": runs[0], "hidden": runs[1], "project": share.project_id}
    before = table_digests(owner)
    texts = b""

    # Once each: most routes have neither parameter.
    paths = {
        fill(route, {"token": share.token, "run": run, "name": name})
        for run, name in ((runs[0], "notes"), (runs[1], "secrets"), (runs[0], "secrets"))
    }
    for path in sorted(paths):
        responses = [client.get(path, fill(query, names)) for query in QUERIES]
        responses += [
            client.post(path, json.dumps(fill(body, names)), content_type="application/json")
            for body in BODIES
        ]
        for response in responses:
            assert response.status_code in {200, 400, 404, 405, 422}, (path, response.status_code)
            content = read_content(response)
            text = str(sorted(response.items())).encode() + content
            # Only a rejection may repeat the values of the request.
            if response.status_code == 200:
                assert HIDDEN.encode() not in text.replace(b"q=unspeakable", b""), path
                assert runs[1].encode() not in text, path
            assert str(owner.pk).encode() not in text
            assert str(share.project_id).encode() not in text
            texts += content

    assert SHOWN.encode() in texts
    assert table_digests(owner) == before


@pytest.mark.parametrize("route", OPEN_ROUTES)
def test_an_unknown_link_opens_nothing(runs, share, route):
    client = Client()
    path = fill(route, {"token": uuid4(), "run": runs[0], "name": "notes"})

    statuses = {client.get(path).status_code, client.post(path).status_code}

    assert statuses <= {404, 405}


def test_a_feedback_token_reveals_nothing_and_creates_feedback_on_its_run_only(
    owner, requester, runs
):
    later = datetime.now(UTC) + timedelta(hours=1)
    token_request = TokenRequest(run_id=UUID(runs[0]), key="liked", expires_at=later)
    (token,) = issue_tokens(owner.pk, [token_request])
    path = urlsplit(token_url(token)).path
    owner_feedback = Feedback.objects.for_workspace(owner)
    count_before = owner_feedback.count()
    body = {
        "score": 1,
        "comment": "well",
        "run_id": runs[1],
        "trace_id": runs[1],
        "key": HIDDEN,
        "workspace_id": str(requester.pk),
    }

    accepted = 0
    for client in (
        Client(),
        create_client(requester, signed_in=True),
        create_client(requester, signed_in=False),
    ):
        responses = [
            client.post(path, json.dumps(body), content_type="application/json"),
            client.get(path, {"score": "1"}),
        ]
        for response in responses:
            assert response.status_code < 500
            accepted += response.status_code == 200
            for secret in (HIDDEN, SHOWN, str(owner.pk), runs[0], str(token.pk)):
                assert secret.encode() not in response.content

    assert accepted > 0
    assert owner_feedback.count() == count_before + accepted
    created = owner_feedback.filter(key="liked").values_list("run_id", "workspace_id")
    assert list(created) == [(UUID(runs[0]), owner.pk)] * accepted
    assert not Feedback.objects.for_workspace(requester).exists()


def other_character(character):
    return "A" if character != "A" else "B"


LINK = re.compile(r'https?://[^"\s]*/public/download\?token=[^"\s\\]+')


def download_tokens(text):
    return {parse_qs(urlsplit(link).query)["token"][0] for link in LINK.findall(text)}


def test_a_download_link_opens_only_its_file(owner, requester, runs):
    key = create_client(owner, signed_in=False)
    first, second = (
        next(iter(download_tokens(key.get(f"/runs/{run_id}").content.decode()))) for run_id in runs
    )
    anonymous = Client()

    def download(token):
        return anonymous.get("/public/download", {"token": token})

    assert read_content(download(first)) == SHOWN.encode()
    assert read_content(download(second)) == HIDDEN.encode()
    first_parts, second_parts = first.rsplit(":", 2), second.rsplit(":", 2)
    mixed = [
        ":".join([first_parts[0], *second_parts[1:]]),
        ":".join([second_parts[0], *first_parts[1:]]),
        ":".join(first_parts[:2]),
    ]
    # The last character contains padding bits.
    changed = [
        f"{first[:index]}{other_character(first[index])}{first[index + 1 :]}"
        for index in range(len(first) - 1)
    ]
    for token in [*mixed, *changed, "", "x", "\x00", first + first, first.upper()]:
        response = download(token)
        assert response.status_code == 403, token
        assert response.json()["code"] == "download_expired"
    # A key of another workspace gets no link to the file.
    outsider = create_client(requester, signed_in=False)
    assert outsider.get(f"/runs/{runs[0]}").status_code == 404
    assert download_tokens(outsider.get(f"/runs/{runs[0]}").content.decode()) == set()


def test_a_token_signed_for_another_purpose_downloads_nothing(owner, runs):
    path = f"attachments/{owner.pk}/{runs[0]}/x"
    for salt in ("", "django.core.signing", "tracing.feedback", "other"):
        token = signing.dumps([path, "text/plain", "x"], salt=salt or "django.core.signing")
        assert Client().get("/public/download", {"token": token}).status_code == 403


def test_exports_are_hidden_from_other_workspaces(owner, requester, runs):
    part = create_export_part(Project.objects.for_workspace(owner).get(name="project"), HIDDEN)
    paths = [
        f"/bulk-exports/{part.export_id}",
        f"/bulk-exports/{part.export_id}/runs",
        f"/bulk-exports/{part.export_id}/runs/{part.pk}",
        f"/bulk-exports/destinations/{part.export.destination_id}",
    ]
    owner_client, outsider = (
        create_client(workspace, signed_in=False) for workspace in (owner, requester)
    )

    for path in paths:
        assert HIDDEN in owner_client.get(path).content.decode(), path
        response = outsider.get(path)
        assert response.status_code == 404
        assert HIDDEN not in response.content.decode()
    for path in ("/bulk-exports", "/bulk-exports/destinations"):
        assert outsider.get(path).json() == []


def test_the_page_of_an_export_is_hidden_from_other_workspaces(owner, requester, runs):
    part = create_export_part(Project.objects.for_workspace(owner).get(name="project"), HIDDEN)
    outsider = create_client(requester, signed_in=True)

    for workspace in (owner, requester):
        response = outsider.get(f"/o/{workspace.pk}/exports/{part.export_id}")
        assert response.status_code == 404
        assert HIDDEN not in response.content.decode()


def test_an_export_with_foreign_ids_is_rejected(owner, requester, runs):
    project = Project.objects.for_workspace(owner).get(name="project")
    part = create_export_part(project, HIDDEN)
    ingest(requester, wire_run(session_name="own"))
    own_project = Project.objects.for_workspace(requester).get(name="own")
    own_part = create_export_part(own_project, "harmless")
    client = create_client(requester, signed_in=False)
    days = {"start_time": "2026-01-01T00:00:00Z", "end_time": "2026-01-02T00:00:00Z"}
    before = table_digests(owner), table_digests(requester)

    for session, destination in (
        (project.pk, own_part.export.destination_id),
        (own_project.pk, part.export.destination_id),
        (project.pk, part.export.destination_id),
    ):
        body = days | {
            "session_id": str(session),
            "bulk_export_destination_id": str(destination),
        }
        response = client.post("/bulk-exports", json.dumps(body), content_type="application/json")
        assert response.status_code in {404, 422}, response.content

    assert (table_digests(owner), table_digests(requester)) == before
