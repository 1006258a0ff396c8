"""Costs of model calls: the price map (`entries`, `price_map`) and the computation (`costs`)."""
