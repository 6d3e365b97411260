"""Orderings × placements × sizing, compiled: by arrival, length, fair share, with backfill."""
