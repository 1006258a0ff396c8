"""Levels of the lines that a graph host prints, which are its deployment's log."""

from __future__ import annotations

import pytest

from apps.agent_runtime.hosts.log_levels import LineLevels
from apps.deployments.models import LogLine
from tests.agent_runtime.factories import execute, make_run, make_thread
from tests.installation import wait_until


def levels(text: str) -> list[tuple[str, str]]:
    found = LineLevels()
    return [found.split(line) for line in text.splitlines()]


@pytest.mark.django_db(transaction=True)
def test_every_line_of_a_failed_run_is_an_error(engine, revision, listen):
    thread = make_thread(revision)
    run = make_run(thread, "fail", kwargs={"input": {"answer": "?"}})
    execute(engine, thread)
    list(listen(run.pk))
    lines = LogLine.objects.for_workspace(revision.workspace_id).filter(revision=revision)
    wait_until(lambda: lines.filter(message__startswith="During task").exists())

    logged = list(lines.order_by("pk").values_list("level", "message"))

    messages = [message for _, message in logged]
    assert messages[0] == f"ERROR: run {run.pk} of graph `fail` failed"
    assert messages[1] == "Traceback (most recent call last):"
    assert "LookupError: no such city" in messages
    assert {level for level, _ in logged} == {"ERROR"}


def test_a_traceback_of_the_author_is_an_error_from_its_head_to_its_exception():
    text = """\
ready
Traceback (most recent call last):
  File "a.py", line 1, in f
    g()
    ~^^
KeyError: 'a'
During handling of the above exception, another exception occurred:
Traceback (most recent call last):
  File "a.py", line 3, in f
builtins.ValueError
  with a second line
served: 3
  and an indented one"""

    found = [level for level, _ in levels(text)]

    assert found == ["INFO", *["ERROR"] * 10, "INFO", "INFO"]


@pytest.mark.parametrize(
    ("first", "level"),
    [
        ("ERROR:root:failed", "ERROR"),
        ("CRITICAL:root:failed", "CRITICAL"),
        ("INFO:root:failed", "ERROR"),
        ("failed", "ERROR"),
    ],
)
def test_a_traceback_has_at_least_the_level_error(first, level):
    lines = [first, "Traceback (most recent call last):", '  File "a.py", line 1', "KeyError", "on"]

    found = [level for level, _ in levels("\n".join(lines))]

    assert found[1:] == [level] * 3 + ["INFO"]


def test_frames_have_the_level_of_the_warning_before_them():
    text = 'WARNING: blocking code\n  File "a.py", line 1, in f\n    sleep(1)\nINFO:root:a\nb'

    assert [level for level, _ in levels(text)] == ["WARNING"] * 3 + ["INFO"] * 2


def test_exception_groups_are_errors():
    text = """\
  + Exception Group Traceback (most recent call last):
  |   File "a.py", line 1, in f
  | ExceptionGroup: two (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    | ValueError: 1
    +------------------------------------
2 agents are ready"""

    assert [level for level, _ in levels(text)] == ["ERROR"] * 7 + ["INFO"]


def test_marked_lines_have_the_level_of_their_record_whatever_they_say():
    text = "ERROR: run failed\n\x1fTraceback (most recent call last):\n\x1fINFO: no\n\x1fwords\nb"

    assert levels(text) == [
        ("ERROR", "ERROR: run failed"),
        ("ERROR", "Traceback (most recent call last):"),
        ("ERROR", "INFO: no"),
        ("ERROR", "words"),
        ("INFO", "b"),
    ]
