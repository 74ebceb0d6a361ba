"""Ownership of namespaces when several processes serve one root."""
