"""The protocols of a server: requests parsed, responses written, by their specifications."""
