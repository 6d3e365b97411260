"""Real clusters, each a Backend."""
