"""Files of rows as streams of Arrow tables in the types of a Weir table."""
