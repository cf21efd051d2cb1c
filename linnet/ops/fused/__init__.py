"""The ops around a mixer, fused where a native kernel exists: norms, projections, MLPs, the loss."""
