"""Making, changing, copying and computing dashboards."""
