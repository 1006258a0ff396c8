"""Signal receivers connect at start-up, in processes that never load the URLs as well."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.integration
def test_every_module_with_receivers_is_imported_by_django_setup():
    modules = sorted(
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in (ROOT / "apps").rglob("*.py")
        if "\n@receiver" in path.read_text()
    )
    script = "import django, sys; django.setup(); print(*sys.modules, sep='\\n')"

    process = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True, text=True
    )

    assert modules
    assert set(modules) <= set(process.stdout.split())
