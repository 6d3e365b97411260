"""Baselines exactly as their papers' public code has them."""
