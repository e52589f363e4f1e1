"""The documentation: its pages, and the generators of pages."""
