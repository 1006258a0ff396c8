"""What can be wrong with a `langgraph.json`."""


class ConfigError(Exception):
    """What is wrong with a `langgraph.json`, for its author."""
