"""How much memory the embedded PostgreSQL takes for its pages."""

from __future__ import annotations

import pytest

from config.embedded.postgres import buffers

GB = 2**30


@pytest.mark.parametrize(
    ("machine", "megabytes"), [(GB, 128), (4 * GB, 256), (24 * GB, 1024), (512 * GB, 1024)]
)
def test_a_sixteenth_of_the_machine_between_two_ends(tmp_path, machine, megabytes):
    assert buffers(machine, tmp_path / "no-such-file") == megabytes


@pytest.mark.parametrize(("limit", "megabytes"), [("max\n", 512), (f"{4 * GB}\n", 256)])
def test_a_container_has_what_it_is_allowed(tmp_path, limit, megabytes):
    (tmp_path / "memory.max").write_text(limit)

    assert buffers(8 * GB, tmp_path / "memory.max") == megabytes
