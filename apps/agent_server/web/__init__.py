"""HTTP around the routes: addresses, origins, an agent's own application."""
