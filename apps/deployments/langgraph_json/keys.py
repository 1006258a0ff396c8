"""The keys of `langgraph.json`: supported, ignored with a warning, or rejected.

docs/langgraph-json.md documents them; a test compares the two.
"""

from __future__ import annotations

import difflib


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
# Keys without an effect on how the platform builds and serves; the build log warns about them.
IGNORED = {
    "api_version": "the platform has one version of the Agent Server",
    "base_image": "agents run in a sandbox of the platform, not in a container image",
    "checkpointer.path": "the platform stores the state of all threads itself",
    "dockerfile_lines": (
        "no container image is built, so programs that these lines install are missing; put Python"
        " packages into `dependencies` and variables into `env`"
    ),
    "http.logging_headers": "the platform keeps no access log of an agent's requests",
    "http.middleware_order": (
        "authentication always runs before the middleware of `http.app`, which applies to its own"
        " routes only"
    ),
    "image_distro": "no container image is built",
    "node_version": "Python graphs do not need Node.js",
    "ui": "components of generative UI need a JavaScript build and are not served",
    "ui_config": "components of generative UI need a JavaScript build and are not served",
}
UNSUPPORTED = {"encryption": "custom encryption handlers are not supported"}

_MAX_UNKNOWN = 20
_SIMILARITY = 0.7
_PROTECTIVE = ("auth", "encrypt")


def check_keys(raw: dict[str, object], path: str) -> None:
    """Reject unsupported keys, and unknown ones that look like a typing error.

    An empty value counts as absent. Other unknown keys have no effect, as in LangGraph's CLI.
    """
    for name in sorted(raw):
        if name in UNSUPPORTED and raw[name] not in (None, {}, [], ""):
            raise ConfigError(
                f"{path} has `{name}`, which is not supported ({UNSUPPORTED[name]}). Remove the"
                " key to build the agent without it."
            )
    unknown = unknown_keys(raw)
    if len(unknown) > _MAX_UNKNOWN:
        raise ConfigError(f"{path} has {len(unknown)} unknown keys; at most {_MAX_UNKNOWN} may be.")
    for name in unknown:
        if intended := _similar_key(name):
            raise ConfigError(
                f"{path} has the unknown key `{name}`. Did you mean `{intended}`? Remove or rename"
                " it."
            )


def unknown_keys(raw: dict[str, object]) -> list[str]:
    """Return the keys of the file that have no meaning, sorted."""
    return sorted(raw.keys() - SUPPORTED - IGNORED.keys() - UNSUPPORTED.keys())


def _similar_key(name: str) -> str | None:
    """Return the key that the author probably meant.

    Without its effect an agent could serve without its authentication.
    """
    lower = name.lower()
    known = sorted(SUPPORTED | UNSUPPORTED.keys())
    if close := difflib.get_close_matches(lower, known, n=1, cutoff=_SIMILARITY):
        return close[0]
    if lower.startswith(_PROTECTIVE):
        return "auth" if lower.startswith("auth") else "encryption"
    return None


def ignored_key_warnings(raw: dict[str, object]) -> list[str]:
    """Return a warning for each key that is present and has no effect."""
    values = dict(raw)
    for section, entries in raw.items():
        if isinstance(entries, dict):
            values |= {f"{section}.{name}": value for name, value in entries.items()}
    warnings = [
        f"`{name}` has no effect here: {reason}."
        for name, reason in IGNORED.items()
        if values.get(name) not in (None, {}, [], "")
    ]
    return warnings + [
        f"`{name}` is not a key of langgraph.json and has no effect." for name in unknown_keys(raw)
    ]
