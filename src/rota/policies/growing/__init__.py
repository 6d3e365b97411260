"""Policies that let the networks of jobs grow, where a world has learning curves."""
