"""The documentation: its pages, and what makes those that are generated."""
