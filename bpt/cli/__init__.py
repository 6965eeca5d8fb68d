"""The command line: one file a command, with its flags, a call and an exit status."""
