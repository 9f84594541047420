"""Models and programs that several tests export."""
