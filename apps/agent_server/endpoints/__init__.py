"""The HTTP routes of an Agent Server: one function each, declared with `EndpointGroup`."""
