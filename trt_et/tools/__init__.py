"""What the command line does, as functions: diagnosis, running, comparing and timing programs."""
