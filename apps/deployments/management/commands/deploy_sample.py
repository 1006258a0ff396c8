"""`manage.py deploy_sample`: deploy the sample agent by the ordinary way, once per content."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from apps.deployments import deploy_cli, sample
from apps.deployments.management.commands import deploy
from apps.deployments.models import Deployment
from apps.deployments.statuses import FAILED


class Command(deploy.Command):
    help = "Deploy the sample agent; nothing happens when its newest content is deployed already."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--organization", required=True, metavar="NAME")
        parser.add_argument("--workspace", metavar="NAME", help="default: the first one")
        parser.add_argument("--wait", action="store_true", help="until it serves or failed")
        parser.add_argument("--json", action="store_true", dest="as_json")

    def handle(self, *args: Any, **options: Any) -> None:
        url, commit = sample.repository()
        workspace = deploy_cli.workspace_named(options["organization"], options["workspace"])
        deployments = Deployment.objects.for_workspace(workspace).present()
        deployment = deployments.filter(name=sample.NAME).first()
        newest = deployment.revisions.newest_first().first() if deployment else None
        # One still in the making has not told its commit yet.
        wanted = (commit, "")
        if deployment and newest and newest.status not in FAILED and newest.commit_sha in wanted:
            self.report(deployment, newest, wait=options["wait"], as_json=options["as_json"])
            return
        asked: dict[str, Any] = {
            "name": sample.NAME,
            "git": url,
            "ref": "main",
            "config": None,
            "env": [],
        }
        super().handle(*args, **{**options, **asked})
