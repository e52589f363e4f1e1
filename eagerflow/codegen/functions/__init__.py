"""Elementary functions for generated code, each written once in terms of simpler instructions.

``table.py`` gathers them; ``parts.py`` holds the steps that several of them, and ops, share.
"""
