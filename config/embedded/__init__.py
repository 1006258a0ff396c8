"""PostgreSQL and Redis from wheels, for an installation without its own servers."""
