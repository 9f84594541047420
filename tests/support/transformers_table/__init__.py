"""The table of docs/guides/transformers-exporter.md: one architecture of transformers a row."""
