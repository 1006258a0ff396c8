"""What model calls cost: the price map (`entries`, `price_map`) and the arithmetic (`costs`)."""
