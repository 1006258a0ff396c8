"""The Agent2Agent protocol of an agent: contexts are threads, tasks are runs (docs/adr/0036)."""
