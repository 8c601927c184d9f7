"""Paths, the residual-pathway layer, pooling, nonlinearities and circular convolution."""
