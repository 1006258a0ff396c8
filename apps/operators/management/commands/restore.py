"""`manage.py restore FILE`: replaces database and objects by those of a backup."""

from __future__ import annotations

import tarfile
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import connection

from apps.operators import backup
from apps.operators.backup import NotABackup, ProgramFailed


class Command(BaseCommand):
    help = "Replace this installation's database and objects by those of a backup."
    # Restoring must work on a damaged database.
    requires_system_checks: list[str] = []
    requires_migrations_checks = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path)
        parser.add_argument("--yes", action="store_true", help="replace the current data")

    def handle(self, *, file: Path, yes: bool, **_: Any) -> None:
        file = file.resolve()
        if not file.is_file():
            raise CommandError(f"The file {file} does not exist.")
        self._check(yes=yes)
        try:
            report = backup.restore_backup(file)
        except (ProgramFailed, NotABackup, tarfile.TarError) as error:
            raise CommandError(str(error)) from None
        if report.differences:
            raise CommandError(
                "The restored data differs from the backup:\n" + "\n".join(report.differences)
            )
        self.stdout.write(
            f"{report.rows} rows of {report.tables} tables and {report.objects} objects restored"
            " and verified. Run `manage.py migrate` before you start a newer version."
        )
        if not report.same_keys:
            self.stderr.write(
                "The backup uses other encryption keys: set them in ENCRYPTION_KEYS, or its secrets"
                " cannot be decrypted."
            )

    def _check(self, *, yes: bool) -> None:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                " AND pid <> pg_backend_pid() AND application_name = 'slipway'"
            )
            (connection_count,) = cursor.fetchone() or (0,)
            cursor.execute("SELECT to_regclass('organizations_organization') IS NOT NULL")
            (has_tables,) = cursor.fetchone() or (False,)
            rows = 0
            if has_tables:
                cursor.execute("SELECT count(*) FROM organizations_organization")
                (rows,) = cursor.fetchone() or (0,)
        if connection_count:
            raise CommandError(
                f"The platform is running ({connection_count} connections). Stop it, and start only"
                " its database: python -m config.supervisor --services-only"
            )
        if rows and not yes:
            raise CommandError(
                f"This database has {rows} organizations, which would be replaced. Confirm"
                " with --yes."
            )
