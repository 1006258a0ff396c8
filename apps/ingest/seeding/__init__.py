"""Generates a realistic population of traces for benchmarks and for development.

`steps` builds a library of run contents, `traces` combines them to traces, and `loader` writes the
traces by `COPY`. The same seed gives the same population.
"""
