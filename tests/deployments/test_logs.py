import pytest

from apps.deployments.models import LogLine
from apps.deployments.services import logs
from apps.deployments.services.logs import RevisionLog, clean_line
from tests.factories.deployments import RevisionFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def log():
    revision = RevisionFactory()
    return RevisionLog(
        workspace_id=revision.workspace_id,
        deployment_id=revision.deployment_id,
        revision_id=revision.pk,
    )


def stored_lines():
    return [(line.level, line.message) for line in LogLine.unscoped.order_by("pk")]


def test_flush_stores_lines_in_order_with_one_statement(log, django_assert_num_queries):
    with django_assert_num_queries(1), log:
        for number in range(50):
            log.write(f"line {number}")

    assert stored_lines() == [("INFO", f"line {number}") for number in range(50)]


def test_text_with_line_breaks_becomes_several_lines(log):
    with log:
        log.write("one\ntwo\n", level="ERROR")

    assert stored_lines() == [("ERROR", "one"), ("ERROR", "two")]


def test_lines_are_not_stored_before_the_flush_is_due(log, monkeypatch):
    monkeypatch.setattr(logs, "FLUSH_SECONDS", 1000)
    log.write("one")
    log.flush_if_due()
    assert stored_lines() == []

    monkeypatch.setattr(logs, "FLUSH_SECONDS", 0)
    log.flush_if_due()

    assert stored_lines() == [("INFO", "one")]


def test_long_log_is_truncated_except_for_errors(log, monkeypatch):
    monkeypatch.setattr(logs, "MAX_LINES", 3)

    with log:
        for number in range(6):
            log.write(f"line {number}")
        log.write("the end", level="ERROR")

    assert [message for _, message in stored_lines()] == [
        "line 0",
        "line 1",
        "line 2",
        "The log is truncated after 3 lines.",
        "the end",
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("a\0b", "ab"),
        ("tab\tbed", "tab\tbed"),
        ("\x1b]0;title\x07text", "text"),
        ("ä日本", "ä日本"),
        ("x" * 5000, "x" * 4000 + "…"),
    ],
)
def test_lines_are_cleaned(line, expected):
    assert clean_line(line) == expected
