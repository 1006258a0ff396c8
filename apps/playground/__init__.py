"""Runs prompts on models: by hand, side by side, and over the examples of a dataset."""
