"""Secondary indexes: their kinds, their definitions, and building one on a Lance dataset."""
