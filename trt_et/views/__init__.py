"""Shows facts: tables for a terminal or a notebook, and a page with boxes and arrows."""
