"""Parse and validate `langgraph.json`; unsupported keys are rejected by name."""

from .keys import ConfigError
from .project import DEFAULT_PATH, ProjectConfig, UvSource, parse, repository_path
from .sections import Sections

__all__ = [
    "DEFAULT_PATH",
    "ConfigError",
    "ProjectConfig",
    "Sections",
    "UvSource",
    "parse",
    "repository_path",
]
