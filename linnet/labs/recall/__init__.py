"""The recall laboratory: how much a mixer with a given state size can look up again, with seeds and intervals.

config.py    one training run as plain values           run.py      run it and return a row
sizes.py     bytes of state -> the width that gives it   cells.py    rows by cell, their numbers and charts
sweep.py     kernels x state x length x rates x seeds    study.py    a study as a claim (labs/claims/rebased)
"""
