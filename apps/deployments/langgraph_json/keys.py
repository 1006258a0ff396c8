"""Every key of `langgraph.json`: honoured, without effect here, or refused by name.

docs/langgraph-json.md says the same for people; a test compares the two.
"""

from __future__ import annotations

from apps.deployments.langgraph_json.errors import ConfigError

HONOURED = frozenset(
    {
        "$schema",
        "auth",
        "checkpointer",
        "dependencies",
        "env",
        "graphs",
        "http",
        "keep_pkg_tools",
        "pip_config_file",
        "pip_installer",
        "python_version",
        "source",
        "store",
        "webhooks",
    }
)
# Keys that describe the container of another builder; they change nothing about an environment
# made here, and the build log says so.
WITHOUT_EFFECT = {
    "api_version": "this platform has one Agent Server, its own",
    "http.logging_headers": "this platform keeps no access log of an agent's requests",
    "http.middleware_order": (
        "authentication comes first; middleware of `http.app` is around its own routes, which are"
        " authenticated before they are reached"
    ),
    "image_distro": "no container image is built",
    "node_version": "graphs in Python need no Node",
}
REFUSED = {
    "base_image": "agents run in a sandbox of this platform, not in an image of one's own",
    "dockerfile_lines": "no container image is built; put packages into `dependencies`",
    "encryption": "what is stored is not encrypted by handlers of one's own",
    "ui": "generative UI components need a JavaScript build",
    "ui_config": "generative UI components need a JavaScript build",
}


def check(raw: dict[str, object], path: str) -> None:
    """Refuse what is not known, and what cannot be honoured. An empty value is no value."""
    for name in sorted(raw):
        if name in REFUSED and raw[name] not in (None, {}, [], ""):
            raise ConfigError(
                f"{path} has `{name}`, which is not supported ({REFUSED[name]}). The build stops"
                " here so that the agent does not run without it."
            )
        if name not in HONOURED and name not in WITHOUT_EFFECT and name not in REFUSED:
            raise ConfigError(f"{path} has the key `{name}`, which is not known.")


def notes(raw: dict[str, object]) -> list[str]:
    """What the author should know of keys that change nothing."""
    http = raw.get("http")
    inside = {f"http.{name}": http.get(name) for name in http} if isinstance(http, dict) else {}
    return [
        f"`{name}` has no effect here: {why}."
        for name, why in WITHOUT_EFFECT.items()
        if {**raw, **inside}.get(name) is not None
    ]
