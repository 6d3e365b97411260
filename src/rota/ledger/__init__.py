"""The books that simulator and policies share: free room, holdings, work done and left."""
