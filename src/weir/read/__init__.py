"""Reading the merged view: snapshot, sources, plan, rows."""
