"""Requests about the agent server itself."""

from __future__ import annotations

from typing import Literal

from apps.agent_server.schemas.base import Flag, Query


class HealthQuery(Query):
    check_db: Flag = False


class MetricsQuery(Query):
    format: Literal["prometheus", "json"] = "prometheus"
