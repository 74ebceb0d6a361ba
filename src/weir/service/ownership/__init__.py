"""Which process writes which namespace, where several serve one root."""
