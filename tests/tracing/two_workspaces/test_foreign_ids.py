"""Rows of another workspace are indistinguishable from missing rows.

The owner workspace gets rows of every kind, and so does the requester. The requester sends every
route requests with the owner's ids and names, and again with ids and names that do not exist: both
responses must be the same, headers included, and no row of the owner may change.
"""

from __future__ import annotations

import logging
from uuid import uuid4

import pytest
from django.db import transaction

from apps.organizations.models import Workspace
from tests.table_writes import count_writes, find_written
from tests.tenant_fixtures import create_tracing_rows
from tests.tracing.two_workspaces.route_client import (
    PlaceholderValues,
    RequestCounts,
    absent_values,
    create_client,
    describe_difference,
    send_and_roll_back,
    send_request,
    table_digests,
)
from tests.tracing.two_workspaces.route_requests import build_requests, list_routes, select_requests

pytestmark = pytest.mark.exhaustive

logger = logging.getLogger(__name__)

WORD, ABSENT, SECRET = "planted-word", "missing-word", "unspeakable tail-of-it"
QUICK_STEP, FULL_STEP = 16, 1


def check_foreign_rows_hidden(
    owner: Workspace, requester: Workspace, *, pages: bool, step: int
) -> None:
    foreign_values = create_tracing_rows(owner, WORD, SECRET)
    own = create_tracing_rows(
        requester, "own-word", "own-secret", dataset_id=uuid4(), example_id=uuid4()
    )
    foreign = PlaceholderValues.build(foreign_values, own, requester)
    absent = PlaceholderValues.build(absent_values(foreign_values, ABSENT), own, requester)
    before = table_digests(owner)
    client = create_client(requester, signed_in=pages)
    counts, problems = RequestCounts(), []

    for route in list_routes(pages=pages):
        for request in select_requests(build_requests(route), step=step):
            if not counts.is_supported(request):
                continue
            with transaction.atomic():
                writes = count_writes()
                response = send_request(client, request, foreign)
                written = set() if request.is_read else find_written(writes)
                if table_digests(owner, written).items() - before.items():
                    problems.append(f"changes: {request.name}")
                transaction.set_rollback(True)
            counts.count(request, response)
            if response.status == 405:
                continue
            if "tail-of-it" in response.text:
                problems.append(f"leaks: {request.name}: {response.text[-300:]}")
            if response.status >= 500 and response.status != 501:
                problems.append(f"fails: {request.name}: {response.text[-300:]}")
            response = response.without(WORD)
            other = send_and_roll_back(client, request, absent).without(ABSENT)
            if response != other:
                problems.append(f"differs: {request.name}: {describe_difference(response, other)}")

    assert not problems, "\n".join(problems)
    assert table_digests(owner) == before
    assert set(counts.by_route) == set(list_routes(pages=pages))
    logger.info("%s: %s", "pages" if pages else "api", counts)


@pytest.mark.parametrize("surface", ["api", "pages"])
def test_foreign_rows_are_answered_like_missing_rows(owner, requester, surface):
    check_foreign_rows_hidden(owner, requester, pages=surface == "pages", step=QUICK_STEP)


@pytest.mark.slow
@pytest.mark.timeout(3_600)  # up to 17,000 requests
@pytest.mark.parametrize("surface", ["api", "pages"])
def test_foreign_rows_are_answered_like_missing_rows_for_every_request(owner, requester, surface):
    check_foreign_rows_hidden(owner, requester, pages=surface == "pages", step=FULL_STEP)
