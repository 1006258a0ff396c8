"""The project with a store index and rules for webhooks, deployed; fixtures of two files."""

from __future__ import annotations

from pathlib import Path

from tests.contract.deploying import deploy
from tests.live import Live

TOKEN = "s3cret"


def deployed(live: Live) -> str:
    """The agent's address."""
    folder = Path(__file__).parent / "store_project"
    return deploy(live, folder, "store", f"LG_WEBHOOK_TOKEN={TOKEN}")
