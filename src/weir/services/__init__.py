"""What runs beside writers and readers: merge and status, as plan, tasks and commit."""
