"""The native decoder: one packed model, one adapter per mixer, one call per step."""
