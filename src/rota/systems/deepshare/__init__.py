"""DeepShare (Ryu and Eo, ICPADS 2023): place jobs where they slow each other down least."""
