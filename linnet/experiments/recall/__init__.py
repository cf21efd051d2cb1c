"""The recall laboratory: how much a mixer of a given state can look up again, with seeds and intervals.

config.py    one training run as plain values           run.py      the run, as a row
sizes.py     bytes of state -> the width that gives it   stats.py    intervals, windows of learning rates, transitions
sweep.py     kernels x state x length x rates x seeds    studies/    one question to a file, with its verdict rule
"""
