"""`manage.py deploy`: create a deployment from Git, or a new revision of an existing one."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.core.errors import AppError
from apps.deployments import services
from apps.deployments.langgraph_json import DEFAULT_PATH
from apps.deployments.models import Deployment, LogKind, LogLine, Revision
from apps.deployments.routes import agent_url
from apps.deployments.services.logs import clean_line
from apps.deployments.statuses import RevisionStatus
from apps.organizations.models import Organization, Workspace

_POLL_SECONDS = 0.25


def get_workspace(organization: str, workspace: str | None) -> Workspace:
    """Return the named workspace, or the organization's oldest one."""
    organization_row = Organization.objects.filter(name=organization).first()
    if organization_row is None:
        raise CommandError(f"There is no organization named {organization!r}.")
    workspaces = organization_row.workspaces.present().order_by("created_at")
    row = (workspaces.filter(name=workspace) if workspace else workspaces).first()
    if row is None:
        raise CommandError(f"{organization} has no workspace named {workspace!r}.")
    return row


def wait_until_finished(revision: Revision, *, on_line: Callable[[LogLine], None]) -> Revision:
    """Pass each build log line to `on_line` and return the finished revision."""
    revisions = Revision.objects.for_workspace(revision.workspace_id)
    lines = LogLine.objects.for_workspace(revision.workspace_id)
    lines = lines.filter(revision=revision, kind=LogKind.BUILD)
    last_id = 0
    while True:
        # Read the status before the lines: all lines of a finished build are then already written.
        revision = revisions.get(pk=revision.pk)
        for line in lines.after(last_id):
            last_id = line.pk
            on_line(line)
        if revision.is_final:
            return revision
        time.sleep(_POLL_SECONDS)


class Command(BaseCommand):
    help = "Create a deployment from a Git repository, or a new revision of an existing one."

    def add_arguments(self, parser: CommandParser) -> None:
        self.add_common_arguments(parser)
        parser.add_argument("--name", required=True, help="the deployment's name and URL slug")
        parser.add_argument("--git", required=True, metavar="URL")
        parser.add_argument("--ref", metavar="BRANCH", help="a branch, tag or commit")
        parser.add_argument("--config", metavar="PATH", help=f"default: {DEFAULT_PATH}")
        parser.add_argument(
            "--env",
            action="append",
            default=[],
            metavar="KEY=VALUE",
            help="a variable of the agent to add or change; all others stay",
        )
        parser.add_argument(
            "--unset-env", action="append", default=[], metavar="KEY", help="a variable to remove"
        )

    def add_common_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--organization", required=True, metavar="NAME")
        parser.add_argument("--workspace", metavar="NAME", help="default: the oldest workspace")
        parser.add_argument(
            "--wait", action="store_true", help="wait until the revision has finished"
        )
        parser.add_argument("--json", action="store_true", dest="as_json")

    def handle(self, *_: Any, **options: Any) -> None:
        workspace = get_workspace(options["organization"], options["workspace"])
        try:
            deployment, revision = self.deploy(workspace, options)
        except AppError as error:
            raise CommandError(error.detail) from None
        self.report(deployment, revision, wait=options["wait"], as_json=options["as_json"])

    def deploy(self, workspace: Workspace, options: dict[str, Any]) -> tuple[Deployment, Revision]:
        """Create the deployment, or a new revision if the name exists."""
        fields = {
            "repo_url": options["git"],
            "branch": options["ref"],
            "config_path": options["config"],
        }
        fields = {name: value for name, value in fields.items() if value is not None}
        variables, removed = _parse_variables(options["env"]), options["unset_env"]
        deployments = Deployment.objects.for_workspace(workspace).present()
        deployment = deployments.filter(name=options["name"]).first()
        if deployment is None:
            deployment = services.create_deployment(
                workspace=workspace, name=options["name"], variables=variables, **fields
            )
            return deployment, deployment.revisions.newest_first()[0]
        revision = services.update_deployment(
            deployment=deployment,
            changes=fields,
            variables=variables,
            removed_variables=removed,
            new_revision=True,
        )
        assert revision is not None  # noqa: S101
        return deployment, revision

    def report(
        self, deployment: Deployment, revision: Revision, *, wait: bool, as_json: bool
    ) -> None:
        """Print the result; raise `CommandError` if the revision failed."""
        shown_lines: set[str] = set()

        def show(line: LogLine) -> None:
            if not as_json:
                shown_lines.add(line.message)
                self.stdout.write(line.message)

        if wait:
            revision = wait_until_finished(revision, on_line=show)
        summary = {
            "deployment_id": str(deployment.pk),
            "revision_id": str(revision.pk),
            "status": revision.status,
            "agent_url": agent_url(deployment.slug),
        }
        if as_json:
            self.stdout.write(json.dumps(summary))
        else:
            for name, value in summary.items():
                self.stdout.write(f"{name:16} {value}")
        if wait and revision.status != RevisionStatus.DEPLOYED:
            reason_lines = {clean_line(line) for line in revision.failure.splitlines()}
            if not reason_lines or reason_lines <= shown_lines:
                raise CommandError(f"Revision {revision.number} ended as {revision.status}.")
            raise CommandError(revision.failure)


def _parse_variables(pairs: list[str]) -> dict[str, str]:
    variables = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise CommandError(f"--env {pair!r} must be KEY=VALUE.")
        variables[name] = value
    return variables
