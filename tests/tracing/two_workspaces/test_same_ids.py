"""Runs, traces, threads, projects and feedback with the same ids in two workspaces are separate.

A workspace sends requests for its own rows to every route. Then another workspace gets rows with
the same ids and names, and the first sends the same requests again: every response must be
unchanged, with every count, sum and facet.
"""

from __future__ import annotations

import logging

import pytest
from django.core.cache import cache

from apps.core import object_storage
from apps.core.ids import uuid7
from apps.organizations.models import Workspace
from tests.factories.tracing import read_run
from tests.tenant_fixtures import Values, create_tracing_rows
from tests.tracing.two_workspaces.route_client import (
    ComparableResponse,
    PlaceholderValues,
    RequestCounts,
    create_client,
    describe_difference,
    send_and_roll_back,
)
from tests.tracing.two_workspaces.route_requests import (
    RouteRequest,
    build_requests,
    list_routes,
    select_requests,
)

pytestmark = pytest.mark.exhaustive

logger = logging.getLogger(__name__)

WORD = "same-word"
QUICK_STEP, FULL_STEP = 24, 1


def check_responses_unchanged(
    owner: Workspace, requester: Workspace, *, pages: bool, step: int
) -> None:
    ids = (uuid7(), uuid7())
    own_values = create_tracing_rows(requester, WORD, "unspeakable of-the-requester", ids=ids)
    values = PlaceholderValues.build(own_values, own_values, requester)
    client = create_client(requester, signed_in=pages)
    counts = RequestCounts()
    files = read_files(requester, own_values)
    responses: list[tuple[RouteRequest, ComparableResponse]] = []
    for route in list_routes(pages=pages):
        for request in select_requests(build_requests(route), step=step):
            # The rows in the path always belong to the requester.
            if request.own == 0 and counts.is_supported(request):
                response = send_and_roll_back(client, request, values)
                counts.count(request, response)
                responses.append((request, response))
    # A rollback does not restore files that a request removed from object storage.
    for path, content in files.items():
        object_storage.put(path, content)
    foreign_values: Values = create_tracing_rows(owner, WORD, "unspeakable of-the-owner", ids=ids)
    cache.clear()

    problems = []
    for request, before in responses:
        response = send_and_roll_back(client, request, values)
        if response != before:
            problems.append(f"changes: {request.name}: {describe_difference(before, response)}")
        if "of-the-owner" in response.text:
            problems.append(f"leaks: {request.name}: {response.text[-300:]}")

    assert not problems, "\n".join(problems)
    assert (own_values["run_id"], own_values["word"]) == (
        foreign_values["run_id"],
        foreign_values["word"],
    )
    seen = {request.route for request, response in responses if "of-the-requester" in response.text}
    assert len(seen) >= (15 if pages else 30)
    logger.info("%s: %s", "pages" if pages else "api", counts)


def read_files(workspace: Workspace, values: Values) -> dict[str, bytes]:
    attachments = read_run(workspace, values["run_id"]).row.attachments
    return {attachment.path: object_storage.get(attachment.path) for attachment in attachments}


@pytest.mark.parametrize("surface", ["api", "pages"])
def test_rows_with_the_same_ids_elsewhere_change_no_response(owner, requester, surface):
    check_responses_unchanged(owner, requester, pages=surface == "pages", step=QUICK_STEP)


@pytest.mark.slow
@pytest.mark.timeout(3_600)  # up to 17,000 requests
@pytest.mark.parametrize("surface", ["api", "pages"])
def test_rows_with_the_same_ids_elsewhere_change_no_response_to_any_request(
    owner, requester, surface
):
    check_responses_unchanged(owner, requester, pages=surface == "pages", step=FULL_STEP)
