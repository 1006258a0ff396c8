"""Tone, icon and label of each status, so that colour alone never carries the status."""

from __future__ import annotations

from typing import NamedTuple


class Badge(NamedTuple):
    tone: str
    icon: str
    label: str


BADGES: dict[str, Badge] = {
    # Revisions
    "CREATING": Badge("waiting", "circle-dashed", "Creating"),
    "QUEUED": Badge("waiting", "circle-dashed", "Queued"),
    "AWAITING_BUILD": Badge("waiting", "circle-dashed", "Waiting to build"),
    "BUILDING": Badge("running", "loader-circle", "Building"),
    "AWAITING_DEPLOY": Badge("waiting", "circle-dashed", "Waiting to deploy"),
    "DEPLOYING": Badge("running", "loader-circle", "Deploying"),
    "DEPLOYED": Badge("success", "circle-check", "Deployed"),
    "REPLACED": Badge("", "circle-check", "Replaced"),
    "CREATE_FAILED": Badge("error", "circle-x", "Create failed"),
    "BUILD_FAILED": Badge("error", "circle-x", "Build failed"),
    "DEPLOY_FAILED": Badge("error", "circle-x", "Deploy failed"),
    "SKIPPED": Badge("", "circle-slash", "Skipped"),
    "INTERRUPTED": Badge("warning", "ban", "Stopped"),
    # Deployments
    "serving": Badge("success", "circle-check", "Serving"),
    "starting": Badge("running", "loader-circle", "Starting"),
    "idle": Badge("", "circle-dashed", "Not serving"),
    "stopped": Badge("warning", "ban", "Stopped"),
    "failed": Badge("error", "circle-x", "Failed"),
    "updating": Badge("running", "loader-circle", "Serving, updating"),
    "behind": Badge("warning", "triangle-alert", "Serving, last revision failed"),
    # Runs
    "pending": Badge("running", "loader-circle", "Running"),
    "success": Badge("success", "circle-check", "Success"),
    "error": Badge("error", "circle-x", "Error"),
    "no_end": Badge("warning", "circle-help", "No end received"),
    "interrupted": Badge("waiting", "circle-pause", "Interrupted"),
    # Webhook deliveries
    "due": Badge("waiting", "circle-dashed", "Waiting"),
    "sending": Badge("running", "loader-circle", "Sending"),
    "delivered": Badge("success", "circle-check", "Delivered"),
    "given_up": Badge("error", "circle-x", "Given up"),
    # Alerts
    "ok": Badge("success", "circle-check", "OK"),
    "warning": Badge("warning", "triangle-alert", "Warning"),
    "critical": Badge("error", "circle-alert", "Critical"),
    "disabled": Badge("", "circle-slash", "Disabled"),
    # Experiments on deployments
    "running": Badge("running", "loader-circle", "Running"),
    "cancelling": Badge("running", "loader-circle", "Stopping"),
    "completed": Badge("success", "circle-check", "Completed"),
    "cancelled": Badge("warning", "ban", "Cancelled"),
    # Exports
    "Created": Badge("waiting", "circle-dashed", "Waiting"),
    "Running": Badge("running", "loader-circle", "Running"),
    "Completed": Badge("success", "circle-check", "Completed"),
    "Cancelled": Badge("warning", "ban", "Stopped"),
    "Failed": Badge("error", "circle-x", "Failed"),
    "TimedOut": Badge("error", "circle-x", "Timed out"),
}
RUN_STATUSES = ("success", "error", "interrupted", "cancelled", "pending")
UNKNOWN = Badge("", "circle-help", "Unknown")

RUN_TYPES: dict[str, str] = {
    "llm": "sparkles",
    "chain": "link-2",
    "tool": "wrench",
    "retriever": "database",
    "prompt": "message-square",
    "parser": "braces",
    "embedding": "binary",
    "agent": "bot",
}
"""The icon of each run type; the hues are in static/css/components/run-type.css."""

ROLES: dict[str, tuple[str, str]] = {
    "system": ("settings", "System"),
    "human": ("user", "Human"),
    "ai": ("sparkles", "Assistant"),
    "tool": ("wrench", "Tool"),
}
