"""Slurm, driven from outside: no patch, no plug-in but a hook that holds jobs on arrival."""
