"""Which operators compute in float16 or bfloat16, and the casts around them."""
