"""``bpt export``: write a net as a file that runs without bpt, and check the file against the net."""
