"""Counts in memory survive a failed write."""

from __future__ import annotations

import logging

from django.db import OperationalError

from apps.core.periodic_flush import PeriodicFlush


class Counts:
    def __init__(self, *failures: Exception) -> None:
        self.failures, self.write_count = list(failures), 0

    def flush(self) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.write_count += 1


def test_failed_flush_is_logged_and_repeated(caplog):
    counts = Counts(OperationalError("gone"))
    flusher = PeriodicFlush("test counts", counts.flush)

    with caplog.at_level(logging.WARNING):
        flusher.flush_once()
        flusher.flush_once()

    assert counts.write_count == 1
    assert caplog.messages == ["could not write test counts; they remain in memory"]


def test_flush_at_exit_reports_any_failure(caplog):
    counts = Counts(RuntimeError("interpreter shuts down"))

    with caplog.at_level(logging.WARNING):
        PeriodicFlush("test counts", counts.flush).flush_at_exit()

    assert caplog.messages == ["could not write test counts at exit"]
