"""Linear attention: sums of phi(k) v^T instead of a growing cache, in parallel, chunked and recurrent form."""
