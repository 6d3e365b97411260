"""DAS (KDD 2023): one agent orders the jobs, another places them by a Gaussian process on walks."""
