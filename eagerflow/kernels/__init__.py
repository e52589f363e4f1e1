"""Fused regions and the scalar instructions that they are made of."""
