"""rota: a scheduler for deep-learning GPU clusters that learns."""

__version__ = "0.1.0"
