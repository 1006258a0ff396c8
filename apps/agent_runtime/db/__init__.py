"""The engine's access to PostgreSQL: connections, group commit, reads."""
