"""`manage.py bootstrap_instance`: the work of each `make up` before the processes start."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib.staticfiles.finders import get_finders
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection
from django.db.migrations.loader import MigrationLoader

from apps.billing import database
from apps.console.sample_data import load_sample_data
from apps.core.instance import COMMENT, code_fingerprint
from apps.core.regions import REGIONS
from apps.organizations.models import User

logger = logging.getLogger(__name__)

ORGANIZATION = "Slipway"
EMAIL = "admin@localhost"


class Command(BaseCommand):
    help = "Migrate, collect static files, and create or find the first organization."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--result", type=Path, required=True, metavar="FILE")

    def handle(self, *_: Any, **options: Any) -> None:
        """Write the result to the file, readable by its owner only; safe to repeat.

        A failure is written as well: `{"error": <message>}`.
        """
        try:
            facts = _bootstrap_instance()
        except Exception as error:
            message = str(error).strip().partition("\n")[0]
            if not isinstance(error, CommandError):
                message = f"the bootstrap failed with {type(error).__name__}: {message}"
            _write_result(options["result"], {"error": message})
            raise
        _write_result(options["result"], facts)


def _bootstrap_instance() -> dict[str, str]:
    _migrate()
    _grant_billing_access()
    _collect_static()
    return {"organization": ORGANIZATION, "email": EMAIL, **_bootstrap()}


def _grant_billing_access() -> None:
    """Grant other regions' role access to billing, in the region that stores it."""
    if REGIONS[settings.REGION].keeps_billing and database.role_exists():
        database.grant_privileges()


def _write_result(result: Path, facts: dict[str, str]) -> None:
    draft = result.with_suffix(".draft")
    draft.touch(mode=0o600)
    draft.write_text(json.dumps(facts))
    draft.rename(result)


def _migrate() -> None:
    """Migrate the database. Raises `CommandError` if a newer version has migrated it."""
    loader = MigrationLoader(connection)
    own_apps = {config for config in loader.migrated_apps if _is_own_app(loader, config)}
    unknown = [
        f"{app}.{name}"
        for app, name in loader.applied_migrations
        if app in own_apps and (app, name) not in loader.disk_migrations
    ]
    if unknown:
        raise CommandError(
            "The data was written by a newer Slipway, which migrated it to "
            f"{max(unknown)}: start that version, or set DATA_DIR to another folder."
        )
    if any(key not in loader.applied_migrations for key in loader.graph.nodes):
        call_command("migrate", interactive=False, verbosity=0)
    if not settings.IS_DATABASE_EMBEDDED:
        return  # other installations may migrate an external server
    with connection.cursor() as cursor:
        name = connection.ops.quote_name(connection.settings_dict["NAME"])
        cursor.execute(f"COMMENT ON DATABASE {name} IS '{COMMENT}{code_fingerprint()}'")


def _is_own_app(loader: MigrationLoader, label: str) -> bool:
    module, _ = loader.migrations_module(label)
    return bool(module and module.startswith("apps."))


def _collect_static() -> None:
    """Collect static files if any of them changed."""
    stamp = Path(settings.STATIC_ROOT, ".fingerprint")
    fingerprint = hashlib.sha256("\n".join(_static_files()).encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == fingerprint:
        return
    call_command("collectstatic", interactive=False, verbosity=0)
    stamp.write_text(fingerprint)


def _static_files() -> Iterator[str]:
    for finder in get_finders():
        for path, storage in finder.list([]):
            info = Path(storage.path(path)).stat()
            yield f"{path} {info.st_size} {info.st_mtime_ns}"


def _bootstrap() -> dict[str, str]:
    """Return the output of `manage.py bootstrap` and the admin password."""
    password_file = Path(settings.DATA_DIR, "secrets", "admin_password")
    if not password_file.exists():
        password_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        password_file.touch(mode=0o600)
        password_file.write_text(secrets.token_urlsafe(12))
    password = password_file.read_text().strip()
    owner = User.objects.filter(email=EMAIL).first()
    arguments = ["--organization", ORGANIZATION, "--email", EMAIL, "--operator", "--json"]
    if owner is None:
        # One argument, because the password may begin with a dash.
        arguments.append(f"--password={password}")
    elif not owner.check_password(password):
        password = "(the password you chose)"  # noqa: S105 (a remark)
    output = io.StringIO()
    call_command("bootstrap", *arguments, stdout=output)
    facts: dict[str, str] = json.loads(output.getvalue())
    if owner is None and settings.SAMPLE_DATA:
        _load_sample_data(UUID(facts["workspace_id"]))
    return {**facts, "password": password}


def _load_sample_data(workspace_id: UUID) -> None:
    try:
        load_sample_data(workspace_id)
    except Exception:
        # The start page loads it as well: a start does not fail for it.
        logger.exception("Loading the sample data failed.")
