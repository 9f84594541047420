"""Converters of trt-et, one file per operator."""
