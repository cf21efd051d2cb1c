"""The command line: one file per sub-command, loaded only when it is the one asked for. Nothing imports this."""
