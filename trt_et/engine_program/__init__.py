"""The program of an engine: plain ATen with named bindings, made from an Edge partition."""
