"""Recurrent ops whose state decays or is overwritten: gates, the delta rule, RWKV and selective scans."""
