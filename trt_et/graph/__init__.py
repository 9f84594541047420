"""Helpers for FX graphs; they decide nothing."""
