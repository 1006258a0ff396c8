"""Contract tests of the Agent Server by section of its reference, with the public Python client.

Every test talks to the shared live platform over HTTP, as a user of the client would.
"""
