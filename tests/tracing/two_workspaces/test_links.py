"""Links and tokens are keys to one thing: everybody who has one sees that thing and no other."""

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
from tests.factories.exports import exported
from tests.factories.tracing import MULTIPART, form, ingest, wire_run
from tests.other_tenant import PARAMETER
from tests.tracing.two_workspaces.questions import PUBLIC
from tests.tracing.two_workspaces.walking import client_of, holdings

HIDDEN, SHOWN = "unspeakable", "open-to-all"
OPEN_ROUTES = [
    "/public/<token>/run",
    "/public/<token>/run/<run>",
    "/public/<token>/run/<run>/attachments/<name>",
    "/public/<token>/runs/query",
    "/public/<token>/feedbacks",
    "/public/<token>/r",
    "/public/<token>/r/<run>",
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
def runs(holder):
    """A trace to be shared, and of the same project and thread one that is not."""
    about = {"session_name": "house", "tags": [], "error": None}
    shown = wire_run(name=SHOWN, inputs={"a": SHOWN}, outputs={"a": SHOWN}, **about)
    hidden = wire_run(name=HIDDEN, inputs={"a": HIDDEN}, outputs={"a": HIDDEN}, **about)
    ingest(holder, shown, wire_run(shown, name=SHOWN), hidden, wire_run(hidden, name=HIDDEN))
    key = client_of(holder, signed_in=False)
    body = form(
        (f"attachment.{shown['id']}.notes", SHOWN.encode(), "Content-Type: text/plain"),
        (f"attachment.{hidden['id']}.secrets", HIDDEN.encode(), "Content-Type: text/plain"),
    )
    sent = key.post("/runs/multipart", body, content_type=MULTIPART)
    assert sent.status_code == 202, sent.content
    for run, word in ((shown, SHOWN), (hidden, HIDDEN)):
        said = {"run_id": run["id"], "key": word, "comment": word, "score": 1}
        assert key.post("/feedback", said, content_type="application/json").status_code == 200
    return shown["id"], hidden["id"]


@pytest.fixture
def share(holder, runs):
    project = Project.objects.for_workspace(holder).get(name="house")
    row = Share(workspace=holder, project=project, trace_id=UUID(runs[0]), run_id=UUID(runs[0]))
    row.save()
    return row


def filled(value, names):
    text = json.dumps(value)
    for name, said in names.items():
        text = text.replace(f"<{name}>", str(said))
    return json.loads(text)


def content_of(response):
    return b"".join(response) if response.streaming else response.content


def test_the_open_routes_are_all_walked():
    paths = {shown(f"/{one.pattern}") for one in (*api.urlpatterns, *pages.urlpatterns)}

    of_tokens = {path for path in paths if path.startswith(PUBLIC) and "<token>" in path}
    assert of_tokens == set(OPEN_ROUTES)


def shown(route):
    return PARAMETER.sub(lambda found: f"<{found[1].removesuffix('_id')}>", route)


@pytest.fixture(params=["nobody", "another"])
def client(request, asker):
    return Client() if request.param == "nobody" else client_of(asker, signed_in=True)


@pytest.mark.parametrize("route", OPEN_ROUTES)
def test_a_link_shows_what_it_opens_and_no_more(holder, runs, share, route, client):
    names = {"shown": runs[0], "hidden": runs[1], "project": share.project_id}
    before = holdings(holder)
    texts = b""

    for run, name in ((runs[0], "notes"), (runs[1], "secrets"), (runs[0], "secrets")):
        path = filled(route, {"token": share.token, "run": run, "name": name})
        answers = [client.get(path, filled(query, names)) for query in QUERIES]
        answers += [
            client.post(path, json.dumps(filled(body, names)), content_type="application/json")
            for body in BODIES
        ]
        for answer in answers:
            assert answer.status_code in {200, 400, 404, 405, 422}, (path, answer.status_code)
            content = content_of(answer)
            told = str(sorted(answer.items())).encode() + content
            # What was asked for may be repeated where it is refused, and nowhere else.
            if answer.status_code == 200:
                assert HIDDEN.encode() not in told.replace(b"q=unspeakable", b""), path
                assert runs[1].encode() not in told, path
            assert str(holder.pk).encode() not in told
            assert str(share.project_id).encode() not in told
            texts += content

    assert SHOWN.encode() in texts
    assert holdings(holder) == before


@pytest.mark.parametrize("route", OPEN_ROUTES)
def test_a_link_that_is_not_there_opens_nothing(runs, share, route):
    client = Client()
    path = filled(route, {"token": uuid4(), "run": runs[0], "name": "notes"})

    statuses = {client.get(path).status_code, client.post(path).status_code}

    assert statuses <= {404, 405}


def test_a_feedback_token_says_nothing_and_gives_feedback_on_its_run_only(holder, asker, runs):
    later = datetime.now(UTC) + timedelta(hours=1)
    wanted = TokenRequest(run_id=UUID(runs[0]), key="liked", expires_at=later)
    (token,) = issue_tokens(holder.pk, [wanted])
    path = urlsplit(token_url(token)).path
    theirs = Feedback.objects.for_workspace(holder)
    given = theirs.count()
    said = {
        "score": 1,
        "comment": "well",
        "run_id": runs[1],
        "trace_id": runs[1],
        "key": HIDDEN,
        "workspace_id": str(asker.pk),
    }

    for client in (Client(), client_of(asker, signed_in=True), client_of(asker, signed_in=False)):
        answers = [
            client.post(path, json.dumps(said), content_type="application/json"),
            client.get(path, {"score": "1"}),
        ]
        for answer in answers:
            assert answer.status_code < 500
            for secret in (HIDDEN, SHOWN, str(holder.pk), runs[0], str(token.pk)):
                assert secret.encode() not in answer.content

    assert theirs.count() == given + 1
    assert (theirs.get(key="liked").run_id, theirs.get(key="liked").workspace_id) == (
        UUID(runs[0]),
        holder.pk,
    )
    assert not Feedback.objects.for_workspace(asker).exists()


def other_than(character):
    return "A" if character != "A" else "B"


LINK = re.compile(r'https?://[^"\s]*/public/download\?token=[^"\s\\]+')


def links_in(text):
    return {parse_qs(urlsplit(one).query)["token"][0] for one in LINK.findall(text)}


def test_a_download_link_gives_out_its_file_and_no_other(holder, asker, runs):
    key = client_of(holder, signed_in=False)
    first, second = (
        next(iter(links_in(key.get(f"/runs/{run_id}").content.decode()))) for run_id in runs
    )
    anybody = Client()

    def get(token):
        return anybody.get("/public/download", {"token": token})

    assert content_of(get(first)) == SHOWN.encode()
    assert content_of(get(second)) == HIDDEN.encode()
    one, other = first.rsplit(":", 2), second.rsplit(":", 2)
    mixed = [":".join([one[0], *other[1:]]), ":".join([other[0], *one[1:]]), ":".join(one[:2])]
    # The last character holds bits that say nothing.
    changed = [
        f"{first[:at]}{other_than(first[at])}{first[at + 1 :]}" for at in range(len(first) - 1)
    ]
    for token in [*mixed, *changed, "", "x", "\x00", first + first, first.upper()]:
        refused = get(token)
        assert refused.status_code == 403, token
        assert refused.json()["code"] == "download_expired"
    # Nor does a key of another workspace open what the link's signature does not.
    stranger = client_of(asker, signed_in=False)
    assert stranger.get(f"/runs/{runs[0]}").status_code == 404
    assert links_in(stranger.get(f"/runs/{runs[0]}").content.decode()) == set()


def test_what_is_signed_for_one_purpose_opens_no_other(holder, runs):
    path = f"attachments/{holder.pk}/{runs[0]}/x"
    for salt in ("", "django.core.signing", "tracing.feedback", "other"):
        token = signing.dumps([path, "text/plain", "x"], salt=salt or "django.core.signing")
        assert Client().get("/public/download", {"token": token}).status_code == 403


def test_files_of_an_export_are_its_owners(holder, asker, runs):
    part = exported(Project.objects.for_workspace(holder).get(name="house"), HIDDEN)
    paths = [
        f"/bulk-exports/{part.export_id}",
        f"/bulk-exports/{part.export_id}/runs",
        f"/bulk-exports/{part.export_id}/runs/{part.pk}",
        f"/bulk-exports/destinations/{part.export.destination_id}",
    ]
    owner, stranger = (client_of(one, signed_in=False) for one in (holder, asker))

    for path in paths:
        assert HIDDEN in owner.get(path).content.decode(), path
        refused = stranger.get(path)
        assert refused.status_code == 404
        assert HIDDEN not in refused.content.decode()
    for path in ("/bulk-exports", "/bulk-exports/destinations"):
        assert stranger.get(path).json() == []


def test_a_page_of_an_export_is_its_owners(holder, asker, runs):
    part = exported(Project.objects.for_workspace(holder).get(name="house"), HIDDEN)
    stranger = client_of(asker, signed_in=True)

    for workspace in (holder, asker):
        answer = stranger.get(f"/o/{workspace.pk}/exports/{part.export_id}")
        assert answer.status_code == 404
        assert HIDDEN not in answer.content.decode()


def test_an_export_of_ones_own_by_anothers_ids_is_refused(holder, asker, runs):
    project = Project.objects.for_workspace(holder).get(name="house")
    part = exported(project, HIDDEN)
    ingest(asker, wire_run(session_name="own"))
    own = Project.objects.for_workspace(asker).get(name="own")
    mine = exported(own, "harmless")
    stranger = client_of(asker, signed_in=False)
    days = {"start_time": "2026-01-01T00:00:00Z", "end_time": "2026-01-02T00:00:00Z"}
    before = holdings(holder), holdings(asker)

    for session, destination in (
        (project.pk, mine.export.destination_id),
        (own.pk, part.export.destination_id),
        (project.pk, part.export.destination_id),
    ):
        body = days | {
            "session_id": str(session),
            "bulk_export_destination_id": str(destination),
        }
        answer = stranger.post("/bulk-exports", json.dumps(body), content_type="application/json")
        assert answer.status_code in {404, 422}, answer.content

    assert (holdings(holder), holdings(asker)) == before
