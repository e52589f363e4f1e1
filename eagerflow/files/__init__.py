"""Files: written completely or not at all, and read without executing anything in them."""
