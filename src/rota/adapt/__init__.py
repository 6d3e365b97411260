"""Networks that grow when their job does: deepen, widen, and the agent that decides."""
