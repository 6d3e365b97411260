"""Policies that choose how many workers and servers each job gets, by its speed curve."""
