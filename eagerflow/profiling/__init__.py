"""Profiles: the time of running code by op, line, region, thread and device."""
