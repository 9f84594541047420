"""What is kept on disk between exports."""
