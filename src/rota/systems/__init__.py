"""Learned systems, one per folder: lens, network, reward and defaults."""
