"""Profiles: where the time goes of whatever runs, by op, line, region, thread and device."""
