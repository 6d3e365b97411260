"""DeepShare (Ryu and Eo, ICPADS 2023)."""
