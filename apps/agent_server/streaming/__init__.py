"""Event streams of runs: writing, storing, and reading each event exactly once."""
