"""What the project promises about hard use, one figure a line: ``make reliability``."""
