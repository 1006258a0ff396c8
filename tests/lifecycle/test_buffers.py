"""Size of the shared buffers of the embedded PostgreSQL."""

from __future__ import annotations

import pytest

from config.embedded.postgres import buffers

GB = 2**30


@pytest.mark.parametrize(
    ("machine", "megabytes"), [(GB, 128), (4 * GB, 256), (24 * GB, 1024), (512 * GB, 1024)]
)
def test_buffers_are_a_sixteenth_of_memory_within_bounds(tmp_path, machine, megabytes):
    assert buffers(machine, tmp_path / "no-such-file") == megabytes


@pytest.mark.parametrize(("limit", "megabytes"), [("max\n", 512), (f"{4 * GB}\n", 256)])
def test_buffers_follow_the_memory_limit_of_the_container(tmp_path, limit, megabytes):
    (tmp_path / "memory.max").write_text(limit)

    assert buffers(8 * GB, tmp_path / "memory.max") == megabytes
