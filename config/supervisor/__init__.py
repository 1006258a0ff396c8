"""`make up`: every process of one installation on one machine, under one supervisor."""
