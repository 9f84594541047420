"""Engine blobs that readers take or refuse."""
