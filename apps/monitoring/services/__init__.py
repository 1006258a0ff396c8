"""Create, update, copy and compute dashboards."""
