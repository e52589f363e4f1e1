"""Elementary functions for generated code, each written once in terms of simpler instructions.

``table.py`` collects them; ``parts.py`` has the steps shared by several of them, and by ops.
"""
