"""The model and its estimation: estimators, sums over observations, and compiled kernels."""
