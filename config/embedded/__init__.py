"""PostgreSQL and Redis from wheels, for an installation that has no servers of its own."""
