"""`manage.py deploy_sample`: deploy the sample agent, if its content changed."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from apps.deployments import sample
from apps.deployments.management.commands import deploy
from apps.deployments.models import Deployment
from apps.deployments.statuses import FAILED


class Command(deploy.Command):
    help = "Deploy the sample agent. No effect if its current content is already deployed."

    def add_arguments(self, parser: CommandParser) -> None:
        self.add_common_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        url, commit = sample.ensure_repository()
        workspace = deploy.get_workspace(options["organization"], options["workspace"])
        deployments = Deployment.objects.for_workspace(workspace).present()
        deployment = deployments.filter(name=sample.NAME).first()
        newest = deployment.revisions.newest_first().first() if deployment else None
        # A revision in progress may have no commit yet.
        current_commits = (commit, "")
        if (
            deployment
            and newest
            and newest.status not in FAILED
            and newest.commit_sha in current_commits
        ):
            self.report(deployment, newest, wait=options["wait"], as_json=options["as_json"])
            return
        options_of_deploy: dict[str, Any] = {
            "name": sample.NAME,
            "git": url,
            "ref": "main",
            "config": None,
            "env": [],
            "unset_env": [],
        }
        super().handle(*args, **{**options, **options_of_deploy})
