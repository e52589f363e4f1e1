"""Tests of eagerflow; the folders mirror the package."""
