"""What is estimated, and how: the model, estimators, sums over observations, compiled kernels."""
