"""One file per laboratory command: reproduce, report, recall, icl, bench."""
