from __future__ import annotations


class BuildFailed(Exception):
    """The build cannot go on; the text says why, in words for the author of the repository."""
