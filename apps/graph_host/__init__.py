"""The program that runs one revision's graphs, inside that revision's own environment.

It is not a Django app and knows no data service: a socket that it inherits is its only door to
the platform. It imports the standard library, msgpack and LangGraph, and nothing else of Slipway,
so its modules refer to each other by relative imports: the package is called `graph_host` there.
"""
