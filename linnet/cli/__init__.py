"""The command line: one file per sub-command, imported only on request. No other folder imports this one."""
