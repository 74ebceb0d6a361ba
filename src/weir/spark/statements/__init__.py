"""SQL statements that Spark hands to no source written in Python: told apart, and run as writes of Weir."""
