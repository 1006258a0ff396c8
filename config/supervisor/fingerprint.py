"""What the database must have been prepared for: the migrations and the packages of this code."""

import hashlib

from config.env import BASE_DIR

# `manage.py prepare` leaves it as the comment of the database, so it goes where the data goes.
COMMENT = "prepared for "


def code_fingerprint() -> str:
    """Changes when a migration comes or goes, or when any package changes its version."""
    names = sorted(
        str(path.relative_to(BASE_DIR)) for path in BASE_DIR.glob("apps/*/migrations/*.py")
    )
    words = [*names, (BASE_DIR / "requirements.lock").read_text()]
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:24]
