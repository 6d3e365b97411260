"""Bookkeeping that simulator and policies share: free room, what jobs hold, work done and left."""
