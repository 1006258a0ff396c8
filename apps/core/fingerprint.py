"""Fingerprint of the code that a database has been migrated for."""

import hashlib
from pathlib import Path

BASE_DIR = Path(__file__).resolve().parents[2]
# `manage.py bootstrap_instance` stores it as the database comment, so it moves with the data.
COMMENT = "prepared for "


def code_fingerprint() -> str:
    """Return a hash of the migrations and of the package versions."""
    names = sorted(
        str(path.relative_to(BASE_DIR)) for path in BASE_DIR.glob("apps/*/migrations/*.py")
    )
    lines = [*names, (BASE_DIR / "requirements.lock").read_text()]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:24]
