"""DeepShare: placement that knows what distributed jobs lose to each other on the network."""
