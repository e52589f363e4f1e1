"""The protocols that a server speaks: requests read, answers written, by their specifications."""
