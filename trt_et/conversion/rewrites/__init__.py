"""Graph rewrites before conversion, one file per subject."""
