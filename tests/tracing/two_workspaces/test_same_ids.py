"""Runs, traces, threads, projects and feedback called the same in two workspaces stay apart.

A workspace asks every route about its own things. Then another workspace gets things of the same
ids and names; the first asks the same again, and every answer must be what it was: not a byte
more, and no count, sum or facet that has moved.
"""

from __future__ import annotations

import logging

import pytest
from django.core.cache import cache

from apps.core import objects
from apps.core.ids import uuid7
from apps.organizations.models import Workspace
from tests.factories.tracing import read
from tests.tenant_fixtures import Values, plant
from tests.tracing.two_workspaces.questions import Question, questions, routes, some
from tests.tracing.two_workspaces.walking import (
    Answer,
    Counts,
    Names,
    client_of,
    difference,
    passing,
)

logger = logging.getLogger(__name__)

WORD = "same-word"
QUICK, WHOLE = 24, 1


def check(holder: Workspace, asker: Workspace, *, pages: bool, each: int) -> None:
    ids = (uuid7(), uuid7())
    own = plant(asker, WORD, "unspeakable of-the-asker", ids=ids)
    names = Names.of(own, own, asker)
    client = client_of(asker, signed_in=pages)
    counts = Counts()
    files = files_of(asker, own)
    answers: list[tuple[Question, Answer]] = []
    for route in routes(pages=pages):
        for question in some(questions(route), each=each):
            # What is in the path is the asker's own in any case.
            if question.own == 0 and counts.is_taken(question):
                answer = passing(client, question, names)
                counts.count(question, answer)
                answers.append((question, answer))
    # What a question removed from object storage no transaction brings back.
    for path, content in files.items():
        objects.put(path, content)
    theirs: Values = plant(holder, WORD, "unspeakable of-the-holder", ids=ids)
    cache.clear()

    found = []
    for question, before in answers:
        answer = passing(client, question, names)
        if answer != before:
            found.append(f"moves: {question.name}: {difference(before, answer)}")
        if "of-the-holder" in answer.text:
            found.append(f"leaks: {question.name}: {answer.text[-300:]}")

    assert not found, "\n".join(found)
    assert (own["run_id"], own["word"]) == (theirs["run_id"], theirs["word"])
    seen = {question.route for question, answer in answers if "of-the-asker" in answer.text}
    assert len(seen) >= (15 if pages else 30)
    logger.info("%s: %s", "pages" if pages else "api", counts)


def files_of(workspace: Workspace, values: Values) -> dict[str, bytes]:
    attachments = read(workspace, values["run_id"]).row.attachments
    return {one.path: objects.get(one.path) for one in attachments}


@pytest.mark.parametrize("surface", ["api", "pages"])
def test_what_is_called_the_same_elsewhere_moves_no_answer(holder, asker, surface):
    check(holder, asker, pages=surface == "pages", each=QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("surface", ["api", "pages"])
def test_what_is_called_the_same_elsewhere_moves_no_answer_whatever_is_asked(
    holder, asker, surface
):
    check(holder, asker, pages=surface == "pages", each=WHOLE)
