"""Model providers: their keys, their models, and one client for their chat APIs.

The package has no tables: keys are secrets of the workspace.
"""
