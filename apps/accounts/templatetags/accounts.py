from __future__ import annotations

from django import template

register = template.Library()

# In this order: each names itself, and some of those before it.
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
    """`Firefox on Linux`; what says less of itself is shown by its first word."""
    name = next((said for word, said in _BROWSERS.items() if f"{word}/" in user_agent), None)
    if name is None:
        return user_agent.partition(" ")[0].partition("/")[0] or "Unknown"
    system = next((said for word, said in _SYSTEMS.items() if word in user_agent), None)
    return f"{name} on {system}" if system else name
