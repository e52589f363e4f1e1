"""Products, factorisations and systems of matrices."""
