"""The program that runs one revision's graphs in that revision's virtual environment.

It is not a Django app and has no credentials of data stores; it reaches the platform only through
an inherited socket. It imports the standard library, msgpack and LangGraph's packages, nothing else
of Slipway. In the sandbox the package is named `graph_host`, so its imports are relative.
"""
