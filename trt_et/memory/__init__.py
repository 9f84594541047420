"""Memory planning: state and inputs of engines stay on their GPU."""
