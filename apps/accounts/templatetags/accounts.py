from __future__ import annotations

from django import template

register = template.Library()

# The order matters: a user agent also contains the names of browsers further down.
_BROWSERS = {
    "Edg": "Edge",
    "OPR": "Opera",
    "Firefox": "Firefox",
    "Chrome": "Chrome",
    "Safari": "Safari",
}
_SYSTEMS = {
    "Windows": "Windows",
    "Android": "Android",
    "iPhone": "iPhone",
    "iPad": "iPad",
    "Mac OS": "macOS",
    "Linux": "Linux",
}


@register.filter
def browser(user_agent: str) -> str:
    """Return browser and system, as `Firefox on Linux`; of an unknown agent, its first word."""
    name = next((label for token, label in _BROWSERS.items() if f"{token}/" in user_agent), None)
    if name is None:
        return user_agent.partition(" ")[0].partition("/")[0] or "Unknown"
    system = next((label for token, label in _SYSTEMS.items() if token in user_agent), None)
    return f"{name} on {system}" if system else name
