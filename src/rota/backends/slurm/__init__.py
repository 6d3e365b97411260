"""Slurm, driven from outside: no patch, only a hook that holds jobs on arrival."""
