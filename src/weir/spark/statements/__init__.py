"""SQL statements that Spark does not pass to Python data sources, run as writes by Weir."""
