"""The reference of the Agent Server, section by section, asked by the public Python client.

Everything here speaks to the shared live platform over HTTP, as a user of the client would.
"""
