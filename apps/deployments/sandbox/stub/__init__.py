"""The launcher program between the platform's process and the sandbox.

It runs in a bare interpreter (`-I -S`), imports little because each import delays every start, and
finally executes bubblewrap. A separate program avoids `preexec_fn`, which is unsafe with threads.
"""
