"""What exporting costs: P1 to P10, P22, and P25 on, of the project's goals, and how cost grows."""
