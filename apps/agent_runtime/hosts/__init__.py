"""Graph host processes of a worker: start, pool, isolation, output."""
