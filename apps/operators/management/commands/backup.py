"""`manage.py backup FILE`: the database and all objects in one file."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.template.defaultfilters import filesizeformat

from apps.operators import backup
from apps.operators.backup import ProgramFailed


class Command(BaseCommand):
    help = "Write the database and all objects to one file. The platform may keep running."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path)
        parser.add_argument("--quick", action="store_true", help="count rows without checksums")

    def handle(self, *, file: Path, quick: bool, **_: Any) -> None:
        file = file.resolve()
        if file.exists():
            raise CommandError(f"{file} exists already.")
        if not file.parent.is_dir():
            raise CommandError(f"The folder {file.parent} does not exist.")
        try:
            report = backup.write_backup(file, quick=quick)
        except ProgramFailed as error:
            raise CommandError(str(error)) from None
        self.stdout.write(
            f"{report.rows} rows of {report.tables} tables and {report.objects} objects written to"
            f" {file} ({filesizeformat(report.size)}). The backup does not contain the encryption"
            " keys: keep DATA_DIR/secrets, or ENCRYPTION_KEYS, separately."
        )
