"""Filters of documents, as values, and their translation for tables and DataFusion."""
