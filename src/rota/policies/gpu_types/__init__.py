"""Policies for clusters with several GPU types."""
