"""Placement that counts what jobs lose to each other on nodes and links."""
