"""Learners, each whole in one file, and what runs, keeps and resumes them."""
