"""The keys of `langgraph.json`: supported, ignored with a warning, or rejected.

docs/langgraph-json.md documents them; a test compares the two.
"""

from __future__ import annotations


class ConfigError(Exception):
    """`langgraph.json` is invalid; the message is for its author."""


SUPPORTED = frozenset(
    {
        "$schema",
        "auth",
        "checkpointer",
        "dependencies",
        "env",
        "graphs",
        "http",
        "keep_pkg_tools",
        "mcp",
        "pip_config_file",
        "pip_installer",
        "python_version",
        "source",
        "store",
        "webhooks",
    }
)
# Keys for container builds; they have no effect here, and the build log warns about them.
IGNORED = {
    "api_version": "the platform has one version of the Agent Server",
    "http.logging_headers": "the platform keeps no access log of an agent's requests",
    "http.middleware_order": (
        "authentication always runs before the middleware of `http.app`, which applies to its own"
        " routes only"
    ),
    "image_distro": "no container image is built",
    "node_version": "Python graphs do not need Node.js",
}
UNSUPPORTED = {
    "base_image": "agents run in a sandbox of the platform, not in a container image",
    "dockerfile_lines": "no container image is built; put packages into `dependencies`",
    "encryption": "custom encryption handlers are not supported",
    "ui": "generative UI components need a JavaScript build",
    "ui_config": "generative UI components need a JavaScript build",
}


def check_keys(raw: dict[str, object], path: str) -> None:
    """Reject unknown and unsupported keys. An empty value counts as absent."""
    for name in sorted(raw):
        if name in UNSUPPORTED and raw[name] not in (None, {}, [], ""):
            raise ConfigError(
                f"{path} has `{name}`, which is not supported ({UNSUPPORTED[name]}). Remove the"
                " key to build the agent without it."
            )
        if name not in SUPPORTED and name not in IGNORED and name not in UNSUPPORTED:
            raise ConfigError(f"{path} has the unknown key `{name}`.")


def ignored_key_warnings(raw: dict[str, object]) -> list[str]:
    """Return a warning for each ignored key that is present."""
    http = raw.get("http")
    http_keys = {f"http.{name}": http.get(name) for name in http} if isinstance(http, dict) else {}
    return [
        f"`{name}` has no effect here: {reason}."
        for name, reason in IGNORED.items()
        if {**raw, **http_keys}.get(name) is not None
    ]
