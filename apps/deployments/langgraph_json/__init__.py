"""`langgraph.json`, read and checked: what is not honoured is refused by name."""

from .errors import ConfigError
from .project import DEFAULT_PATH, Project, UvSource, parse
from .sections import Sections

__all__ = ["DEFAULT_PATH", "ConfigError", "Project", "Sections", "UvSource", "parse"]
