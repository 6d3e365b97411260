"""DL2 (Peng et al., TPDS 2021), and a better design of the same idea."""
