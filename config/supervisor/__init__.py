"""`make up`: every process of one installation on one machine, under one supervisor."""

import os

# Process titles must not overwrite the environment in memory, by which processes are found. The
# variable is read when the library is first used, and every process inherits it.
os.environ["SPT_NOENV"] = "1"
