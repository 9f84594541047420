"""Lowers an Edge partition to a plain ATen program with named bindings."""
