"""The gate: `make test` in phases with deadlines, and closing lines that state what failed."""
