"""Policies that choose the numbers of workers and servers of each job, by its speed curve."""
