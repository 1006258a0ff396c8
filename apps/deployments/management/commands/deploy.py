"""`manage.py deploy`: create a deployment from Git, or a new revision of an existing one."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.core.errors import AppError
from apps.deployments import deploy_cli, services
from apps.deployments.langgraph_json import DEFAULT_PATH
from apps.deployments.models import Deployment, LogLine, Revision
from apps.deployments.statuses import RevisionStatus
from apps.organizations.models import Workspace


class Command(BaseCommand):
    help = "Create a deployment from a Git repository, or a new revision of an existing one."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--organization", required=True, metavar="NAME")
        parser.add_argument("--workspace", metavar="NAME", help="default: the oldest workspace")
        parser.add_argument("--name", required=True, help="the deployment's name and URL slug")
        parser.add_argument("--git", required=True, metavar="URL")
        parser.add_argument("--ref", metavar="BRANCH", help="a branch, tag or commit")
        parser.add_argument("--config", metavar="PATH", help=f"default: {DEFAULT_PATH}")
        parser.add_argument(
            "--env",
            action="append",
            default=[],
            metavar="KEY=VALUE",
            help="a variable of the agent; the given ones replace all existing ones",
        )
        parser.add_argument(
            "--wait", action="store_true", help="wait until the revision has finished"
        )
        parser.add_argument("--json", action="store_true", dest="as_json")

    def handle(self, *_: Any, **options: Any) -> None:
        workspace = deploy_cli.get_workspace(options["organization"], options["workspace"])
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
        variables = _variables(options["env"])
        deployments = Deployment.objects.for_workspace(workspace).present()
        deployment = deployments.filter(name=options["name"]).first()
        if deployment is None:
            deployment = services.create_deployment(
                workspace=workspace, name=options["name"], variables=variables, **fields
            )
            return deployment, deployment.revisions.newest_first()[0]
        revision = services.update_deployment(
            deployment=deployment, changes=fields, variables=variables, new_revision=True
        )
        assert revision is not None  # noqa: S101
        return deployment, revision

    def report(
        self, deployment: Deployment, revision: Revision, *, wait: bool, as_json: bool
    ) -> None:
        """Print the result; raise `CommandError` if the revision failed."""
        if wait:
            revision = deploy_cli.wait_until_finished(
                revision, on_line=self._ignore if as_json else self._show
            )
        summary = deploy_cli.summary(deployment, revision.pk, revision.status)
        if as_json:
            self.stdout.write(json.dumps(summary))
        else:
            for name, value in summary.items():
                self.stdout.write(f"{name:16} {value}")
        if wait and revision.status != RevisionStatus.DEPLOYED:
            reason = revision.failure or f"The revision is {revision.status}."
            raise CommandError(reason)

    def _show(self, line: LogLine) -> None:
        self.stdout.write(line.message)

    def _ignore(self, line: LogLine) -> None:
        pass


def _variables(pairs: list[str]) -> dict[str, str]:
    variables = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise CommandError(f"--env {pair!r} must be KEY=VALUE.")
        variables[name] = value
    return variables
