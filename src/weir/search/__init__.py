"""Shared parts of all searches."""
