"""Graphs: representation, listing, drawing, comparison, checks, editing and execution."""
