"""The program between the platform's process and the sandbox.

It runs in a bare interpreter (`-I -S`), imports little because each import delays every start,
and ends by becoming bubblewrap. Doing this work here, not in a `preexec_fn`, keeps `fork` out of
the platform's threads.
"""
