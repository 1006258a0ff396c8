"""The tools by name. Where the public `langsmith-mcp-server` has a tool, ours has its name."""

from __future__ import annotations

from apps.platform_mcp.registry import by_name
from apps.platform_mcp.tools import (
    datasets,
    deployments,
    evaluators,
    experiments,
    prompts,
    traces,
    usage,
)

TOOLS = by_name(
    (
        traces.tools,
        datasets.tools,
        experiments.tools,
        evaluators.tools,
        prompts.tools,
        deployments.tools,
        usage.tools,
    )
)
