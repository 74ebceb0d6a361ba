"""Writes that look before they decide: conditions, patches, and what is changed by filter."""
