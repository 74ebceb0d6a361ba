"""Secondary indexes: which kinds there are, what each is made with, and building one on a Lance dataset."""
