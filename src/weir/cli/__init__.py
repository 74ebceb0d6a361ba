"""The command line: what `weir` does, how it is asked, and how it answers."""
