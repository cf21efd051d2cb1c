"""Questions that reviews of the three papers leave open: kernels by task, short sequences, other attention types."""
