"""Builds each distinct engine once: in this process, in others, or on other machines."""
