"""The description of an Agent Server that is true because it is read from the server itself.

`handlers` reads from the code what a route takes, `answers` says what it gives, `document` puts the
two together. A test holds the document against the route tables and against real answers.
"""
