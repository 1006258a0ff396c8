"""`manage.py prepare`: what every start of `make up` does before the processes start."""

from __future__ import annotations

import hashlib
import io
import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.staticfiles.finders import get_finders
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection
from django.db.migrations.loader import MigrationLoader

from apps.billing import access
from apps.core.fingerprint import COMMENT, code_fingerprint
from apps.core.regions import REGIONS
from apps.organizations.models import User

ORGANIZATION = "Slipway"
EMAIL = "admin@localhost"


class Command(BaseCommand):
    help = "Migrate, collect static files, and make or find the first organization."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--result", type=Path, required=True, metavar="FILE")

    def handle(self, *_: Any, **options: Any) -> None:
        """Write what came of it to the file, readable by its owner only; safe to repeat.

        A failure goes there too, as one sentence: `{"error": ...}`.
        """
        try:
            facts = _prepare()
        except Exception as error:
            sentence = str(error).strip().partition("\n")[0]
            if not isinstance(error, CommandError):
                sentence = f"the preparation failed with {type(error).__name__}: {sentence}"
            _write(options["result"], {"error": sentence})
            raise
        _write(options["result"], facts)


def _prepare() -> dict[str, str]:
    _migrate()
    _open_billing()
    _collect_static()
    return {"organization": ORGANIZATION, "email": EMAIL, **_bootstrap()}


def _open_billing() -> None:
    """Where billing is kept, the other regions' role may reach it, if there is one."""
    if REGIONS[settings.REGION].keeps_billing and access.role_exists():
        access.grant()


def _write(result: Path, facts: dict[str, str]) -> None:
    draft = result.with_suffix(".draft")
    draft.touch(mode=0o600)
    draft.write_text(json.dumps(facts))
    draft.rename(result)


def _migrate() -> None:
    """Bring the database to this version; refuse one that a newer version has migrated."""
    loader = MigrationLoader(connection)
    ours = {config for config in loader.migrated_apps if _is_ours(loader, config)}
    unknown = [
        f"{app}.{name}"
        for app, name in loader.applied_migrations
        if app in ours and (app, name) not in loader.disk_migrations
    ]
    if unknown:
        raise CommandError(
            "The data was written by a newer Slipway, which migrated it to "
            f"{max(unknown)}: start that version, or set DATA_DIR to another folder."
        )
    if any(key not in loader.applied_migrations for key in loader.graph.nodes):
        call_command("migrate", interactive=False, verbosity=0)
    if not settings.IS_DATABASE_EMBEDDED:
        return  # another server, which others may migrate as well
    with connection.cursor() as cursor:
        name = connection.ops.quote_name(connection.settings_dict["NAME"])
        cursor.execute(f"COMMENT ON DATABASE {name} IS '{COMMENT}{code_fingerprint()}'")


def _is_ours(loader: MigrationLoader, label: str) -> bool:
    module, _ = loader.migrations_module(label)
    return bool(module and module.startswith("apps."))


def _collect_static() -> None:
    """Copy and hash the static files, unless nothing has changed since the last time."""
    stamp = Path(settings.STATIC_ROOT, ".fingerprint")
    fingerprint = hashlib.sha256("\n".join(_static_files()).encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == fingerprint:
        return
    call_command("collectstatic", interactive=False, verbosity=0)
    stamp.write_text(fingerprint)


def _static_files() -> Iterator[str]:
    for finder in get_finders():
        for path, storage in finder.list([]):
            found = Path(storage.path(path)).stat()
            yield f"{path} {found.st_size} {found.st_mtime_ns}"


def _bootstrap() -> dict[str, str]:
    """What `manage.py bootstrap` says, and the password that signs in."""
    kept = Path(settings.DATA_DIR, "secrets", "admin_password")
    if not kept.exists():
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        kept.touch(mode=0o600)
        kept.write_text(secrets.token_urlsafe(12))
    password = kept.read_text().strip()
    owner = User.objects.filter(email=EMAIL).first()
    arguments = ["--organization", ORGANIZATION, "--email", EMAIL, "--operator", "--json"]
    if owner is None:
        arguments.append(f"--password={password}")  # it may begin with a dash
    elif not owner.check_password(password):
        password = "(the password you chose)"  # noqa: S105 (a remark)
    said = io.StringIO()
    call_command("bootstrap", *arguments, stdout=said)
    facts: dict[str, str] = json.loads(said.getvalue())
    return {**facts, "password": password}
