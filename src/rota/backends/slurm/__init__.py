"""Slurm as a cluster: its jobs are born held, and a scheduler says where they run."""
