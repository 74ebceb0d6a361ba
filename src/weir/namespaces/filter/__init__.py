"""Which documents count: filters as values, and what a table and DataFusion are asked by them."""
