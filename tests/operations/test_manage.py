"""`manage.py` as a user calls it: in a process of its own, without the variables of `make up`."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from config.env import BASE_DIR

SHOW_ADDRESS = "from django.conf import settings; print(settings.BASE_URL)"


@pytest.mark.parametrize(
    ("variables", "expected"),
    [({}, "http://127.0.0.1:8123"), ({"PORT": "8456"}, "http://127.0.0.1:8456")],
)
def test_commands_use_the_port_of_the_last_start(tmp_path, variables, expected):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "port").write_text("8123")
    inherited = {
        name: os.environ[name] for name in os.environ if name not in {"PORT", "PUBLIC_URL"}
    }

    completed = subprocess.run(
        [sys.executable, "manage.py", "shell", "--no-imports", "-c", SHOW_ADDRESS],
        cwd=BASE_DIR,
        env={**inherited, "DATA_DIR": str(tmp_path), **variables},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )

    assert completed.stdout.strip() == expected
