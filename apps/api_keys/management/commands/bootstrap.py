"""`manage.py bootstrap`: create or find an organization, its owner and a key.

The database has only hashes, so the key is stored in a file in DATA_DIR that only its owner reads.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.core.validators import validate_email

from apps.api_keys.models import ApiKey
from apps.api_keys.services import digest, issue_key
from apps.organizations import services
from apps.organizations.models import User, Workspace


def operator_key(
    *, workspace: Workspace, owner: User, force_new: bool, is_organization_wide: bool
) -> str:
    """Return the stored key of the workspace, or issue a new one if invalid or `force_new`.

    An organization-wide key has a file of its own.
    """
    organization = workspace.organization
    key_workspace = None if is_organization_wide else workspace
    folder = Path(settings.DATA_DIR) / "secrets"
    path = folder / f"api_key-{organization.pk if is_organization_wide else workspace.pk}"
    if not force_new and path.exists():
        key = path.read_text().strip()
        rows = ApiKey.objects.filter(
            digest=digest(key),
            organization=organization,
            workspace=key_workspace,
            is_organization_wide=is_organization_wide,
        )
        row = rows.first()
        if row is not None and row.is_live:
            return key
    _, secret = issue_key(
        organization=organization,
        workspace=key_workspace,
        name="Bootstrap",
        scopes=["admin"],
        created_by=owner,
    )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = folder / f".api_key.{os.getpid()}"
    draft.touch(mode=0o600)
    draft.write_text(secret)
    draft.replace(path)
    return secret


class Command(BaseCommand):
    help = "Create or find an organization with its first workspace, its owner and an API key."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--organization", required=True, metavar="NAME")
        parser.add_argument("--email", required=True, metavar="ADDRESS")
        parser.add_argument("--password", help="set the owner's password")
        parser.add_argument(
            "--new-key",
            action="store_true",
            help="issue a new key instead of printing the first call's key again",
        )
        parser.add_argument(
            "--scope",
            choices=["workspace", "organization"],
            default="workspace",
            help="whether the key is for the first workspace or for the whole organization",
        )
        parser.add_argument("--operator", action="store_true", help="let the owner use /admin/")
        parser.add_argument("--json", action="store_true", dest="as_json")

    def handle(self, *_: Any, **options: Any) -> None:
        try:
            validate_email(options["email"])
        except ValidationError:
            raise CommandError(f"{options['email']!r} is not an e-mail address.") from None
        setup = services.get_or_create_organization(
            organization_name=options["organization"],
            email=options["email"],
            password=options["password"],
        )
        if options["operator"]:
            User.objects.filter(pk=setup.owner.pk).update(is_staff=True, is_superuser=True)
        result = {
            "organization_id": str(setup.organization.pk),
            "workspace_id": str(setup.workspace.pk),
            "api_key": operator_key(
                workspace=setup.workspace,
                owner=setup.owner,
                force_new=options["new_key"],
                is_organization_wide=options["scope"] == "organization",
            ),
            "api_url": f"{settings.API_BASE_URL}/api/v1",
            "ui_url": f"{settings.BASE_URL}/o/{setup.workspace.pk}",
        }
        if options["as_json"]:
            self.stdout.write(json.dumps(result))
            return
        for name, value in result.items():
            self.stdout.write(f"{name:16} {value}")
