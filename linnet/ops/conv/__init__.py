"""Short causal convolutions, alone and fused with a linear gate."""
