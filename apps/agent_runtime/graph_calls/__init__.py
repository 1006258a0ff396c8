"""Requests to a graph host outside of runs: state reads, thread edits, custom routes."""
