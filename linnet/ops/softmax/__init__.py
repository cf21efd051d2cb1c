"""Softmax attention: over all tokens, over a sliding window, and over the tokens of the same hash bucket."""
