"""The compiled kernels: the only place that knows a shared library exists. Everything else asks `linear_attention`."""
