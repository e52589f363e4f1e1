"""Tests of the rules that hold the source together."""
