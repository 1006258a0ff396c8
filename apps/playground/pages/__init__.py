"""The playground page."""
