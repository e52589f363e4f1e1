"""The ledger: what a trace relied on in Python, and whether it has changed since."""
