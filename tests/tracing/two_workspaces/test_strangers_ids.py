"""What is another workspace's is as what is not there, and no answer holds a byte of it.

Rows of every kind are planted in one workspace. Another one, which has rows of every kind too,
asks every route by their ids and names, and asks the same again by ids and names that nobody has:
both answers must be the same, headers included, and nothing of the first workspace may change.
"""

from __future__ import annotations

import logging
from uuid import uuid4

import pytest
from django.db import transaction

from apps.organizations.models import Workspace
from tests.tenant_fixtures import plant
from tests.tracing.two_workspaces.questions import questions, routes, some
from tests.tracing.two_workspaces.walking import (
    Counts,
    Names,
    answer_to,
    client_of,
    difference,
    holdings,
    nobodys,
    passing,
)

logger = logging.getLogger(__name__)

WORD, ABSENT, SECRET = "planted-word", "missing-word", "unspeakable tail-of-it"
QUICK, WHOLE = 16, 1


def check(holder: Workspace, asker: Workspace, *, pages: bool, each: int) -> None:
    theirs = plant(holder, WORD, SECRET)
    own = plant(asker, "own-word", "own-secret", dataset_id=uuid4(), example_id=uuid4())
    foreign = Names.of(theirs, own, asker)
    absent = Names.of(nobodys(theirs, ABSENT), own, asker)
    before = holdings(holder)
    client = client_of(asker, signed_in=pages)
    counts, found = Counts(), []

    for route in routes(pages=pages):
        for question in some(questions(route), each=each):
            if not counts.is_taken(question):
                continue
            with transaction.atomic():
                answer = answer_to(client, question, foreign)
                if not question.is_read and holdings(holder) != before:
                    found.append(f"changes: {question.name}")
                transaction.set_rollback(True)
            counts.count(question, answer)
            if answer.status == 405:
                continue
            if "tail-of-it" in answer.text:
                found.append(f"leaks: {question.name}: {answer.text[-300:]}")
            if answer.status >= 500 and answer.status != 501:
                found.append(f"fails: {question.name}: {answer.text[-300:]}")
            answer = answer.without(WORD)
            other = passing(client, question, absent).without(ABSENT)
            if answer != other:
                found.append(f"differs: {question.name}: {difference(answer, other)}")

    assert not found, "\n".join(found)
    assert holdings(holder) == before
    assert set(counts.by_route) == set(routes(pages=pages))
    logger.info("%s: %s", "pages" if pages else "api", counts)


@pytest.mark.parametrize("surface", ["api", "pages"])
def test_what_is_anothers_is_as_what_is_not_there(holder, asker, surface):
    check(holder, asker, pages=surface == "pages", each=QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("surface", ["api", "pages"])
def test_what_is_anothers_is_as_what_is_not_there_whatever_is_asked(holder, asker, surface):
    check(holder, asker, pages=surface == "pages", each=WHOLE)
